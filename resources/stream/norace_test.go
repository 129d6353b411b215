// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

//go:build !race

package stream

// RaceEnabled is for the tests outside the package too.
const RaceEnabled = false
