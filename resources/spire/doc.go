// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

// Package spire keeps registration entries at a SPIRE server as duties want them. docs/wire/auth.spire.md has the rules of its
// calls.
//
// A duty describes its entries by a [Kind], decides which of them should exist by implementing [Desired], and runs a
// [Registrar], which compares and applies: one list of all entries at the start, batches of differences, retries. All
// duties share the options and one [Connection]. plan.go is pure, workload.go gets the operator's own certificate from the
// SPIRE agent, and calls.go makes the calls, all of which pass resources/outside.
//
// What may not live here: which entries should exist.
package spire
