// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

// Package unbuilt does not compile.
package unbuilt

import "testing"

func TestUnbuilt(*testing.T) { missing() }
