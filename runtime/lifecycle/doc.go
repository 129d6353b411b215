// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

// Package lifecycle starts and stops hooks along a graph.
//
// A [Runner] is given steps and which steps each comes after. Steps that are
// ready start concurrently, each with a deadline of its own; stopping is the
// same graph reversed, also after a failed start. A hook that does not return in
// time is left behind, and the error has its stack.
//
// The package knows neither modules nor constructors: the order is given.
package lifecycle
