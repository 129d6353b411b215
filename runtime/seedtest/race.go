// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

//go:build race

package seedtest

// RaceEnabled says whether tests run under the race detector.
const RaceEnabled = true
