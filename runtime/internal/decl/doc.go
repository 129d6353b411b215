// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

// Package decl holds what cells declare, as plain data.
//
// Package cell writes it, the planner and the graph read it. Nothing here runs
// a constructor, touches a flag set or has an effect: a list of cells can be
// made, compared and thrown away freely.
package decl
