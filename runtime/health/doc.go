// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

// Package health is the tree of what works and what does not.
//
// Every module has a [Reporter], every hook and job one below it. A report says
// how a part fares now; it is kept until the next one, or until the part is
// gone. The tree is read as a whole: as text by people, as JSON by programs.
//
// Reports are about function, not progress: Degraded means that something a
// user relies on does not happen, and its message says what. For a part that has to
// wait, what keeps it waiting says so, by [Waiting].
package health
