// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

//go:build !race

package envoy

const raceEnabled = false
