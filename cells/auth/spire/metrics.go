// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package spire

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/skep-operator/skep/resources/spire"
	"github.com/skep-operator/skep/runtime/metrics"
)

type entryMetrics struct {
	Entries  *prometheus.GaugeVec
	Compared prometheus.Gauge
	Ignored  prometheus.Gauge
}

func newMetrics(f metrics.Factory) *entryMetrics {
	f = f.In("spire")
	m := spire.NewEntryMetrics(f, "identities")
	return &entryMetrics{m.Entries, m.Compared, f.Gauge("ignored_identities", "CiliumIdentities whose names are no numbers of identities")}
}

func (m *entryMetrics) common() spire.EntryMetrics {
	return spire.EntryMetrics{Entries: m.Entries, Compared: m.Compared}
}
