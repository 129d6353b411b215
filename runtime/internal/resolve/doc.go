// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

// Package resolve turns a list of declarations into a graph that can be drawn and
// built: the enabled modules, the provider of every value, the nodes that are
// reached, and the start order.
//
// It runs no constructor. Mistakes are collected as problems, so that one run
// reports all of them. The passes, each over the outcome of the one before:
// flatten the tree of declarations (flatten.go), read the functions
// (functions.go) and their signatures (signature.go), evaluate the conditions of
// modules (conditions.go), find the provider of every parameter (params.go) or
// the reason why there is none (param_error.go), check for duplicates and unused
// declarations (checks.go), mark what roots reach and find cycles
// (reachability.go), order steps by the values they take (start_order.go), by
// declared edges (order_edges.go), and then by declaration (toposort.go).
package resolve
