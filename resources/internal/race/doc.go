// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

// Package race says whether the race detector is on, which distorts memory and times. It imports nothing, so that a test of
// memory that needs no harness links none.
package race
