// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

// Package job runs background work.
//
// A [Job] is a value that says what to run and when: once, on a timer, or for
// each event of a channel, with retries. A [Group] runs the jobs of one module:
// each has a health report, metrics and pprof labels of its own, and all end
// with the module. Jobs known beforehand are declared as cells; those that come
// up while running are added to the module's group.
//
// Properties:
//   - The context of a run ends when its job is stopped; a run that returns the
//     context's error then counts as stopped, not as failed.
//   - Runs of one job never overlap.
//   - A panic ends the job, is reported with its stack, and leaves it to the
//     runtime to rebuild the module.
package job
