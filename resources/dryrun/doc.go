// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

// Package dryrun is the dry run: with --plan every duty runs as it would while
// leading, and what it writes goes into an overlay instead of to a server.
//
//   - Reads and watch streams see the overlay, so chains of writes are planned to
//     their end. See [Objects]; the key-value store has an overlay of its own.
//   - Time is simulated: while nothing is under way it jumps to the next moment at
//     which a mechanism has something to do. See [Plan.Begin] and [Plan.AfterFunc].
//   - The plan ends when it is stable: streams are synced, queues are empty, and
//     nothing is to come of waiting any longer. See [Plan.Make].
//   - What would be written is told once it is over, with why. See [Report].
//
// A nil *[Plan] is a real run: its methods do what they do without a plan, so the
// mechanisms that use them have one path. Duties know nothing of plans, as long as
// they change other servers through resources/outside.
//
// What may not live here: what decides about writes, and clients.
package dryrun
