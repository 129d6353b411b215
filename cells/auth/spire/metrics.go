// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package spire

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/skep-operator/skep/runtime/metrics"
)

type entryMetrics struct {
	Entries   *prometheus.GaugeVec
	Ignored   prometheus.Gauge
	Connected prometheus.Gauge
	Compared  prometheus.Gauge
}

// The states of entries.
const (
	stateDesired = "desired"
	statePresent = "present"
	stateRefused = "refused"
)

func newMetrics(f metrics.Factory) *entryMetrics {
	f = f.In("spire")
	return &entryMetrics{
		Entries:   f.GaugeVec("entries", "Registration entries of identities: those that should exist (desired), those at the SPIRE server (present), and those that it refuses to create or delete (refused)", "state"),
		Ignored:   f.Gauge("ignored_identities", "CiliumIdentities whose names are no numbers of identities"),
		Connected: f.Gauge("connected", "1 if the SPIRE server has answered the last call, 0 otherwise"),
		Compared:  f.Gauge("last_comparison_timestamp_seconds", "When all entries at the SPIRE server were last listed and compared with the identities"),
	}
}
