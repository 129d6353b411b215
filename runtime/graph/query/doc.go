// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

// Package query answers questions about a graph: the links between its cells, and
// the facts about a cell, a type or a flag.
package query
