// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package kvstore

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// storeMetrics are about the requests of all modules and about the stores.
type storeMetrics struct {
	Operations   *prometheus.HistogramVec
	Waited       *prometheus.HistogramVec
	QuorumErrors *prometheus.CounterVec
	LeasesLost   prometheus.Counter
	Uncaused     prometheus.Counter
	BadValues    *prometheus.CounterVec
	Relists      *prometheus.CounterVec

	SyncQueue   *prometheus.GaugeVec
	SyncErrors  *prometheus.CounterVec
	InitialSync *prometheus.GaugeVec
}

func newMetrics() *storeMetrics {
	const ns = "cilium_operator"
	histogram := func(name, help string, labels ...string) *prometheus.HistogramVec {
		return prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Namespace: ns, Name: name, Help: help, Buckets: prometheus.ExponentialBuckets(0.001, 4, 8),
		}, labels)
	}
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: ns, Name: name, Help: help}, labels)
	}
	gauge := func(name, help string, labels ...string) *prometheus.GaugeVec {
		return prometheus.NewGaugeVec(prometheus.GaugeOpts{Namespace: ns, Name: name, Help: help}, labels)
	}
	return &storeMetrics{
		Operations:   histogram("kvstore_operations_duration_seconds", "How long requests to etcd took, by the kind of key they are about", "scope", "kind", "action", "outcome"),
		Waited:       histogram("kvstore_rate_limit_duration_seconds", "How long requests waited for the client's own rate limit", "module"),
		QuorumErrors: counter("kvstore_quorum_errors_total", "Checks that found no quorum, by reason", "error"),
		LeasesLost:   prometheus.NewCounter(prometheus.CounterOpts{Namespace: ns, Name: "kvstore_leases_lost_total", Help: "Leases that ended although they were wanted"}),
		Uncaused:     prometheus.NewCounter(prometheus.CounterOpts{Namespace: ns, Name: "kvstore_writes_without_cause_total", Help: "Writes that nobody can explain; always a defect"}),
		BadValues:    counter("kvstore_bad_values_total", "Values that could not be read and were skipped", "scope"),
		Relists:      counter("kvstore_relists_total", "Listings that a watch had to repeat", "scope"),
		SyncQueue:    gauge("kvstore_sync_queue_size", "Keys that are yet to be written or deleted", "scope", "source_cluster"),
		SyncErrors:   counter("kvstore_sync_errors_total", "Failed attempts to write or delete a key", "scope", "source_cluster"),
		InitialSync:  gauge("kvstore_initial_sync_completed", "1 once all initial keys are written or read", "scope", "source_cluster", "action"),
	}
}

func (m *storeMetrics) did(key, kind, action string, began time.Time, err error) {
	outcome := "success"
	if err != nil {
		outcome = "fail"
	}
	m.Operations.WithLabelValues(scope(key), kind, action, outcome).Observe(time.Since(began).Seconds())
}
