// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

// Package graph is an operator as data: its modules, the values they provide and
// need, the order in which they start, and their health.
//
// A graph is made without running a constructor, and the commands graph, cells,
// why and the generated pages read nothing else. Package query answers questions
// about a graph, package render writes it as text, dot and Mermaid. The program
// in cmd/graphdraw makes SVG and HTML from the JSON form: it has the layout
// engine, which operators do not need.
package graph
