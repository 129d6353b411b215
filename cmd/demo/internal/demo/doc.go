// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

// Package demo shows the operator at work: it starts a control plane in a
// scratch folder, fills it, runs the operator against it and tells what came of
// it.
//
// It drives the binaries as a user does and looks at the cluster from outside; no
// cell may be imported here.
package demo
