// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package ztunnel

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/skep-operator/skep/resources/spire"
	"github.com/skep-operator/skep/runtime/metrics"
)

type entryMetrics struct {
	Entries    *prometheus.GaugeVec
	Compared   prometheus.Gauge
	Ignored    prometheus.Gauge
	Namespaces prometheus.Gauge
	Enrollment *prometheus.CounterVec
}

func newMetrics(f metrics.Factory) *entryMetrics {
	f = f.In("ztunnel")
	m := spire.NewEntryMetrics(f, "service accounts")
	return &entryMetrics{
		m.Entries, m.Compared,
		f.Gauge("ignored_service_accounts", "ServiceAccounts whose names cannot be a part of a SPIFFE ID"),
		f.Gauge("enrolled_namespaces", "Namespaces that are enrolled in ztunnel"),
		f.CounterVec("enrollment_ops_total", "Creates (upsert) and deletes of registration entries of service accounts", "method", "outcome"),
	}
}

func (m *entryMetrics) common() spire.EntryMetrics {
	return spire.EntryMetrics{Entries: m.Entries, Compared: m.Compared, Operations: m.Enrollment}
}
