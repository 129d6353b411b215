// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

// Package graph measures how fast a graph of modules is configured and built:
// the runtime's hive against dig and fx, all given the same constructors.
//
// What may not live here: the modules, which are package testdata/benchcells.
package graph
