// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package doublewrite

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/skep-operator/skep/runtime/metrics"
)

// reportMetrics are those of the original, by the names of 1.18 and later, and by those of 1.17. They are 0 where this process does not
// lead.
type reportMetrics struct {
	CRDTotal     prometheus.Gauge
	KVStoreTotal prometheus.Gauge
	CRDOnly      prometheus.Gauge
	KVStoreOnly  prometheus.Gauge

	CRDTotalCount     prometheus.Gauge
	KVStoreTotalCount prometheus.Gauge
	CRDOnlyCount      prometheus.Gauge
	KVStoreOnlyCount  prometheus.Gauge
}

func newMetrics(f metrics.Factory) *reportMetrics {
	f = f.In("doublewrite")
	return &reportMetrics{
		CRDTotal:     f.Gauge("crd_identities", "CiliumIdentities"),
		KVStoreTotal: f.Gauge("kvstore_identities", "Identities in the kvstore"),
		CRDOnly:      f.Gauge("crd_only_identities", "CiliumIdentities that are not in the kvstore"),
		KVStoreOnly:  f.Gauge("kvstore_only_identities", "Identities in the kvstore that are not CiliumIdentities"),

		CRDTotalCount:     f.Gauge("identity_crd_total_count", "CiliumIdentities; the name of 1.17"),
		KVStoreTotalCount: f.Gauge("identity_kvstore_total_count", "Identities in the kvstore; the name of 1.17"),
		CRDOnlyCount:      f.Gauge("identity_crd_only_count", "CiliumIdentities that are not in the kvstore; the name of 1.17"),
		KVStoreOnlyCount:  f.Gauge("identity_kvstore_only_count", "Identities in the kvstore that are not CiliumIdentities; the name of 1.17"),
	}
}

func (m *reportMetrics) set(r report) {
	for _, g := range []struct {
		value int
		both  [2]prometheus.Gauge
	}{
		{r.crdTotal, [...]prometheus.Gauge{m.CRDTotal, m.CRDTotalCount}},
		{r.kvstoreTotal, [...]prometheus.Gauge{m.KVStoreTotal, m.KVStoreTotalCount}},
		{len(r.crdOnly), [...]prometheus.Gauge{m.CRDOnly, m.CRDOnlyCount}},
		{len(r.kvstoreOnly), [...]prometheus.Gauge{m.KVStoreOnly, m.KVStoreOnlyCount}},
	} {
		for _, gauge := range g.both {
			gauge.Set(float64(g.value))
		}
	}
}
