// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

// Package contest runs ours and its peers side by side: every run in a process
// of its own, rounds interleaved, medians against budgets.
//
// What may not live here: what is measured (packages graph and streams), and how
// results are written (package report).
package contest
