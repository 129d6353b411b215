// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package spire

import (
	"testing"

	"github.com/skep-operator/skep/runtime/benchtest"
)

func TestBenchmarks(t *testing.T) { benchtest.Once(t, BenchmarkBareClient, BenchmarkSQLite) }
