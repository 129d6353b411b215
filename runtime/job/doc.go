// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

// Package job runs background work.
//
// A [Job] is a value that says what to run and when: once, on a timer, or for
// each event of a channel, with retries. A [Group] runs the jobs of one module:
// each has a health report, metrics and pprof labels of its own, and all end
// with the module. Jobs known beforehand are declared as cells; others are added
// to the module's group at run time.
//
// Properties:
//   - The context of a run ends when its job is stopped; the error of a run
//     that was stopped is no failure.
//   - Runs of one job never overlap.
//   - Stopping a job waits for it. One that does not end is left behind, and
//     the error has its stack.
//   - A panic ends the job, is reported with its stack, and leaves it to the
//     runtime to rebuild the module.
//   - Of failures in a row the first is a warning in the log, the others show in
//     health only.
package job
