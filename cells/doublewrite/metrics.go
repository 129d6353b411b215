// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package doublewrite

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/skep-operator/skep/runtime/metrics"
)

// reportMetrics are those of the original. They are 0 where this process does not lead.
type reportMetrics struct {
	CRDTotal     prometheus.Gauge
	KVStoreTotal prometheus.Gauge
	CRDOnly      prometheus.Gauge
	KVStoreOnly  prometheus.Gauge
}

func newMetrics(f metrics.Factory) *reportMetrics {
	f = f.In("doublewrite")
	return &reportMetrics{
		CRDTotal:     f.Gauge("identity_crd_total_count", "CiliumIdentities"),
		KVStoreTotal: f.Gauge("identity_kvstore_total_count", "Identities in the kvstore"),
		CRDOnly:      f.Gauge("identity_crd_only_count", "CiliumIdentities that are not in the kvstore"),
		KVStoreOnly:  f.Gauge("identity_kvstore_only_count", "Identities in the kvstore that are not CiliumIdentities"),
	}
}

func (m *reportMetrics) set(r report) {
	m.CRDTotal.Set(float64(r.crdTotal))
	m.KVStoreTotal.Set(float64(r.kvstoreTotal))
	m.CRDOnly.Set(float64(len(r.crdOnly)))
	m.KVStoreOnly.Set(float64(len(r.kvstoreOnly)))
}
