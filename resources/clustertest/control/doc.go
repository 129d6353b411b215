// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

// Package control is the wire between a running devcluster and those who drive
// it: the shapes of its control API and a client for them.
//
// It is imported from both sides, the devcluster binary (a module of its own)
// and the tests, and so depends on the standard library alone.
package control
