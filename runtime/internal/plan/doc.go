// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

// Package plan turns a list of declarations into a graph that can be drawn and
// built: which modules are on, who provides what to whom, what is reached, and
// in what order it starts.
//
// Nothing here runs a constructor. Mistakes are collected as problems, so that
// one look shows all of them. The steps, each over the outcome of the one
// before: flatten the tree of declarations (tree.go), read the functions
// (function.go) and their signatures (signature.go), select modules by their
// conditions (choose.go), find the provider of every parameter (resolve.go) or
// say why there is none (explain.go), look for duplicates and loose ends
// (checks.go), keep what roots reach and look for cycles (reach.go), order what
// starts by what it takes (order.go), by edges that cells declare (edges.go),
// and then by declaration (sort.go).
package plan
