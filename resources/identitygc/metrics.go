// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package identitygc

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/skep-operator/skep/runtime/metrics"
)

// Metrics are those of the original. The label identity_type is where identities are stored.
type Metrics struct {
	Entries *prometheus.GaugeVec
	Runs    *prometheus.GaugeVec
	Latency *prometheus.GaugeVec
}

// The values of identity_type.
const (
	InCRD     = "crd"
	InKVStore = "kvstore"
)

// NewMetrics returns metrics that are not registered.
func NewMetrics(f metrics.Factory) *Metrics {
	f = f.In("identity_gc")
	return &Metrics{
		Entries: f.GaugeVec("entries", "Identities after the last garbage collection, and those that it deleted", "status", "identity_type"),
		Runs:    f.GaugeVec("runs", "Number of garbage collections; it counts up", "outcome", "identity_type"),
		Latency: f.GaugeVec("latency", "Duration of the last garbage collection in seconds", "outcome", "identity_type"),
	}
}

// CountRun adds a run.
func (m *Metrics) CountRun(identityType string, failed bool, took time.Duration) {
	outcome := "success"
	if failed {
		outcome = "fail"
	}
	m.Runs.WithLabelValues(outcome, identityType).Inc()
	m.Latency.WithLabelValues(outcome, identityType).Set(took.Seconds())
}

// SetEntries sets what a run has found and not deleted, and what it has deleted.
func (m *Metrics) SetEntries(identityType string, alive, deleted int) {
	m.Entries.WithLabelValues("alive", identityType).Set(float64(alive))
	m.Entries.WithLabelValues("deleted", identityType).Set(float64(deleted))
}
