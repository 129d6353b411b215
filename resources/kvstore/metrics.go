// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package kvstore

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// storeMetrics are the metrics of the requests of all modules and of the stores.
type storeMetrics struct {
	Operations   *prometheus.HistogramVec
	Waited       *prometheus.HistogramVec
	QuorumErrors *prometheus.CounterVec
	LeasesLost   prometheus.Counter
	Uncaused     prometheus.Counter
	Relists      *prometheus.CounterVec
	EventsQueued *prometheus.HistogramVec

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
		Operations:   histogram("kvstore_operations_duration_seconds", "Duration of requests to etcd, by class of key", "scope", "kind", "action", "outcome"),
		Waited:       histogram("kvstore_rate_limit_duration_seconds", "Time that requests waited for the rate limit of the client", "module"),
		QuorumErrors: counter("kvstore_quorum_errors_total", "Failed quorum checks, by reason", "error"),
		LeasesLost:   prometheus.NewCounter(prometheus.CounterOpts{Namespace: ns, Name: "kvstore_leases_lost_total", Help: "Leases that expired or were revoked while in use"}),
		Uncaused:     prometheus.NewCounter(prometheus.CounterOpts{Namespace: ns, Name: "kvstore_writes_without_cause_total", Help: "Writes without a cause in their context; always a defect"}),
		Relists:      counter("kvstore_relists_total", "Listings repeated by a watch", "scope"),
		EventsQueued: histogram("kvstore_events_queue_seconds", "How long the changes of a watch waited until its consumer was done with those before", "scope", "action"),
		SyncQueue:    gauge("kvstore_sync_queue_size", "Keys waiting to be written or deleted", "scope", "source_cluster"),
		SyncErrors:   counter("kvstore_sync_errors_total", "Failed attempts to write or delete a key", "scope", "source_cluster"),
		InitialSync:  gauge("kvstore_initial_sync_completed", "1 once the initial keys are written or read", "scope", "source_cluster", "action"),
	}
}

func (m *storeMetrics) observeRequest(key, kind, action string, began time.Time, err error) {
	outcome := "success"
	if err != nil {
		outcome = "fail"
	}
	m.Operations.WithLabelValues(keyClass(key), kind, action, outcome).Observe(time.Since(began).Seconds())
}

// SyncMetrics are those of a duty that keeps the keys of a cluster under a prefix in their desired state.
type SyncMetrics struct {
	Queue   prometheus.Gauge   // keys to be written or deleted
	Errors  prometheus.Counter // failed attempts
	Initial prometheus.Gauge   // 1 once the initial keys are written
}

// NewSyncMetrics returns the metrics of the keys of a cluster under a prefix. A [SyncStore] has its own. c is a client of
// this package.
func NewSyncMetrics(c Client, prefix, cluster string) (SyncMetrics, error) {
	own, err := ownClient(c)
	if err != nil {
		return SyncMetrics{}, err
	}
	scope := keyClass(Folder(prefix))
	m := SyncMetrics{
		Queue:   own.metrics.SyncQueue.WithLabelValues(scope, cluster),
		Errors:  own.metrics.SyncErrors.WithLabelValues(scope, cluster),
		Initial: own.metrics.InitialSync.WithLabelValues(scope, cluster, "write"),
	}
	m.Initial.Set(0)
	return m, nil
}
