// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

// Package health is the tree of health reports.
//
// Every module has a [Reporter], every hook and job a child of it. A report is the
// present state of a part; it is kept until the next one, or until the part is
// removed. The tree is read as a whole: as text or as JSON.
//
// Reports are about function, not progress: Degraded means that something a user
// relies on does not happen, and the message names it. A dependency that blocks
// its callers reports for them with [ReportBlocked].
package health
