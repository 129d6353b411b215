// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package endpointslicesync

import (
	"fmt"
	"testing"

	"github.com/skep-operator/skep/resources/clustermesh"
)

// BenchmarkPlan plans a Service with endpoints in 10 clusters: all slices are as they are to be, or one endpoint has changed.
func BenchmarkPlan(b *testing.B) {
	s := decodeService(b, nil)
	clusters, existing := map[string]*clustermesh.Service{}, map[string][]*meshSlice{}
	for c := range 10 {
		name := fmt.Sprint("cluster-", c)
		clusters[name] = remote(fmt.Sprintf("10.%d.0.1", c), fmt.Sprintf("10.%d.0.2", c), fmt.Sprintf("10.%d.0.3", c))
		existing[name] = stored(b, planFor(s, name, clusters[name], nil, bounds{endpoints: 100}).create...)
	}
	for _, test := range []struct {
		name   string
		writes int
	}{{"unchanged", 0}, {"changed", 1}} {
		b.Run(test.name, func(b *testing.B) {
			if test.writes > 0 {
				clusters["cluster-0"] = remote("10.0.0.1", "10.0.0.2", "10.0.0.9")
			}
			for b.Loop() {
				writes := 0
				for name, backends := range clusters {
					p := planFor(s, name, backends, existing[name], bounds{endpoints: 100})
					writes += len(p.create) + len(p.update) + len(p.remove)
				}
				if writes != test.writes {
					b.Fatalf("%d writes", writes)
				}
			}
		})
	}
}
