// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

// Package lifecycle starts and stops hooks along a graph.
//
// A [Runner] is given steps and which steps each comes after. Steps that are
// ready start concurrently, each with a deadline of its own; stopping is the
// same graph reversed, and is done also for what a failed start had begun. A
// hook that does not return in time is named with the stack it hangs at and
// left behind.
//
// Nothing here knows modules or constructors: the order comes from the plan.
package lifecycle
