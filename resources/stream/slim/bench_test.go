// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package slim_test

import (
	"encoding/json"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/skep-operator/skep/resources/stream/slim"
	"github.com/skep-operator/skep/resources/stream/streamtest"
)

// Decoding one pod of the benchmarks' template: 5.6 KB in protobuf, 9 KB in JSON.
func BenchmarkDecodePod(b *testing.B) {
	protobuf, text := streamtest.NewPods(1).Encoded(0)
	b.Logf("%d bytes of protobuf, %d of JSON", len(protobuf), len(text))
	benchDecode[streamtest.BudgetPod](b, "budget", protobuf, text)
	benchDecode[slim.Pod](b, "slim", protobuf, text)
	b.Run("full/protobuf", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if err := new(corev1.Pod).Unmarshal(protobuf); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("full/json", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if err := json.Unmarshal(text, new(corev1.Pod)); err != nil {
				b.Fatal(err)
			}
		}
	})
}

func benchDecode[T any](b *testing.B, name string, protobuf, text []byte) {
	codec, err := slim.Protobuf[T, corev1.Pod]()
	if err != nil {
		b.Fatal(err)
	}
	interner := slim.NewInterner()
	b.Run(name+"/protobuf", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if err := codec.DecodeProtobuf(interner, protobuf, new(T)); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run(name+"/json", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if err := codec.DecodeJSON(text, new(T)); err != nil {
				b.Fatal(err)
			}
		}
	})
}
