// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

// Package draw lays graphs out with Graphviz and writes them as SVG and as a
// page. What a drawing shows is decided in runtime/graph, which writes the dot
// text that is laid out here; what is here is the look: paper, ink, and what
// moves when a reader clicks.
package draw
