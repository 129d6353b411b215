// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package hive_test

import (
	"fmt"
	"io"
	"testing"

	"github.com/skep-operator/skep/runtime/hive"
	"github.com/skep-operator/skep/testdata/benchcells"
)

func BenchmarkBuild(b *testing.B) {
	for _, n := range []int{10, 100, 150, 300, 1000} {
		b.Run(fmt.Sprintf("modules=%d", n), func(b *testing.B) {
			modules := benchcells.Set(n)
			b.ReportAllocs()
			for b.Loop() {
				h := hive.New("bench", modules, hive.LogTo(io.Discard))
				if err := h.Build(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
