// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

// Package render writes graphs and answers of queries: as text, for Graphviz, and
// as Mermaid flowcharts.
package render
