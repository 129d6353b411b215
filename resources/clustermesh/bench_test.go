// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package clustermesh

import (
	"fmt"
	"runtime"
	"testing"

	"github.com/skep-operator/skep/resources/stream/slim"
)

// BenchmarkTenClusters reads 1,000 services of 3 backends from each of 10 clusters, without the network.
func BenchmarkTenClusters(b *testing.B) {
	values := map[string]map[slim.Key][]byte{}
	for c := range 10 {
		cluster := fmt.Sprint("cluster", c)
		values[cluster] = map[slim.Key][]byte{}
		for i := range 1000 {
			key := slim.Key{Namespace: "shop", Name: fmt.Sprint("web-", i)}
			values[cluster][key] = fmt.Appendf(nil,
				`{"cluster":%q,"namespace":"shop","name":%q,"frontends":{"10.96.0.1":{"http":{"Protocol":"TCP","Port":80}}},"backends":{`+
					`"10.%d.0.1":{"http":{"Protocol":"TCP","Port":8080}},"10.%d.0.2":{"http":{"Protocol":"TCP","Port":8080}},"10.%d.0.3":{"http":{"Protocol":"TCP","Port":8080}}},`+
					`"hostnames":{},"labels":{"app":"web"},"selector":{"app":"web"},"includeExternal":true,"shared":true,"clusterID":%d}`, cluster, key.Name, c, c, c, c+2)
		}
	}
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	var kept *Objects[Service]
	for b.Loop() {
		kept = newObjects(serviceCodec(255), 0, 0)
		for cluster, services := range values {
			kept.begin(cluster)
			for key, value := range services {
				if err := kept.set(cluster, key, value); err != nil {
					b.Fatal(err)
				}
			}
			kept.complete(cluster)
		}
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/10_000, "B/service")
	runtime.KeepAlive(kept)
	runtime.KeepAlive(values)
}
