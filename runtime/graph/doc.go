// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

// Package graph is an operator as data: its modules, what they provide and
// need, the order in which they start, and how they fare.
//
// A graph is made without running a constructor, and the commands graph, cells,
// why and the generated pages read nothing else. Renderers for text, dot,
// mermaid and JSON are here; drawings (SVG and the HTML page) are made from the
// JSON form by the program in cmd/graphdraw, which carries the layout engine so
// that operators do not have to.
package graph
