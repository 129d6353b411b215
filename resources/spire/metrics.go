// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package spire

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/skep-operator/skep/runtime/metrics"
)

// serverMetrics are about the calls of all duties.
type serverMetrics struct {
	Connected prometheus.Gauge
}

func newMetrics(f metrics.Factory) *serverMetrics {
	return &serverMetrics{Connected: f.In("spire").Gauge("connected", "1 if the SPIRE server has answered the last call, 0 otherwise")}
}

// EntryMetrics are about the entries of one duty, which has them among its metrics.
type EntryMetrics struct {
	Entries  *prometheus.GaugeVec
	Compared prometheus.Gauge
	// Operations are the changes that were asked for, by method and outcome; nil: not counted.
	Operations *prometheus.CounterVec
}

// Methods of changes.
const (
	methodUpsert = "upsert"
	methodDelete = "delete"
)

// count counts a change of an entry.
func (m EntryMetrics) count(method string, made bool) {
	outcome := "fail"
	if made {
		outcome = "success"
	}
	if m.Operations != nil {
		m.Operations.WithLabelValues(method, outcome).Inc()
	}
}

// The states of entries.
const (
	StateDesired = "desired"
	StatePresent = "present"
	StateForeign = "foreign"
	StateRefused = "refused"
)

// NewEntryMetrics makes the metrics of entries of something, in the plural.
func NewEntryMetrics(f metrics.Factory, of string) EntryMetrics {
	return EntryMetrics{
		Entries:  f.GaugeVec("entries", "Registration entries of "+of+": those that should exist (desired), those at the SPIRE server (present), those there that belong to nothing here and stay (foreign), and those that it refuses to create or delete (refused)", "state"),
		Compared: f.Gauge("last_comparison_timestamp_seconds", "When all entries at the SPIRE server were last listed and compared with the "+of),
	}
}

func (m *serverMetrics) answered(answered bool) {
	switch {
	case m == nil:
	case answered:
		m.Connected.Set(1)
	default:
		m.Connected.Set(0)
	}
}
