// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package clustermesh

import (
	"slices"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/skep-operator/skep/runtime/metrics"
)

type meshMetrics struct {
	Clusters    *prometheus.GaugeVec
	Ready       *prometheus.GaugeVec
	Failures    *prometheus.GaugeVec
	LastFailure *prometheus.GaugeVec
	Services    *prometheus.GaugeVec
	Exports     *prometheus.GaugeVec
	Unreadable  *prometheus.GaugeVec
	LeftOut     *prometheus.GaugeVec

	// Those of 1.19 and 1.20, of each cluster.
	RemoteServices, RemoteExports, Revocations *prometheus.GaugeVec
}

func newMetrics(f metrics.Factory) *meshMetrics {
	f = f.In("clustermesh")
	return &meshMetrics{
		Clusters:    f.GaugeVec("remote_clusters", "Remote clusters that are configured", "source_cluster", "source_node_name"),
		Ready:       f.GaugeVec("remote_cluster_readiness_status", "1 while a remote cluster is connected and read", "source_cluster", "source_node_name", "target_cluster"),
		Failures:    f.GaugeVec("remote_cluster_failures", "How often the connection to a remote cluster failed, in this term", "source_cluster", "source_node_name", "target_cluster"),
		LastFailure: f.GaugeVec("remote_cluster_last_failure_ts", "When the connection to a remote cluster failed last, in seconds since 1970; 0 for never", "source_cluster", "source_node_name", "target_cluster"),
		Services:    f.GaugeVec("global_services", "Global services of remote clusters", "source_cluster"),
		Exports:     f.GaugeVec("global_service_exports", "Services that remote clusters export by the multi-cluster services API", "source_cluster"),
		Unreadable:  f.GaugeVec("unreadable_values", "Values of a remote cluster that cannot be used", "source_cluster", "target_cluster"),
		LeftOut:     f.GaugeVec("left_out_values", "Values of a remote cluster that are left out, as it has too many keys", "source_cluster", "target_cluster"),

		RemoteServices: f.GaugeVec("remote_cluster_services", "Global services of a remote cluster", "target_cluster"),
		RemoteExports:  f.GaugeVec("remote_cluster_service_exports", "Services that a remote cluster exports by the multi-cluster services API", "target_cluster"),
		Revocations:    f.GaugeVec("remote_cluster_cache_revocations", "How often what is known of a remote cluster was forgotten, as it was unreachable for longer than --clustermesh-cache-ttl, in this term", "target_cluster"),
	}
}

// report sets the metrics of a cluster.
func (m *meshMetrics) report(source []string, r *remote, ready bool) {
	of := append(slices.Clone(source), r.name)
	numberOfServices, services := r.mesh.Services.count(r.name)
	numberOfExports, exports := r.mesh.ServiceExports.count(r.name)
	r.mu.Lock()
	failures, last, revocations := r.status.failures, r.status.lastFailure, r.status.revocations
	r.mu.Unlock()
	m.Ready.WithLabelValues(of...).Set(map[bool]float64{true: 1}[ready])
	m.Failures.WithLabelValues(of...).Set(float64(failures))
	seconds := 0.0
	if !last.IsZero() {
		seconds = float64(last.Unix())
	}
	m.LastFailure.WithLabelValues(of...).Set(seconds)
	m.Services.WithLabelValues(source[0]).Set(float64(len(r.mesh.Services.Keys())))
	m.Exports.WithLabelValues(source[0]).Set(float64(len(r.mesh.ServiceExports.Keys())))
	m.RemoteServices.WithLabelValues(r.name).Set(float64(numberOfServices))
	m.RemoteExports.WithLabelValues(r.name).Set(float64(numberOfExports))
	m.Revocations.WithLabelValues(r.name).Set(float64(revocations))
	m.Unreadable.WithLabelValues(source[0], r.name).Set(float64(services + exports))
	m.LeftOut.WithLabelValues(source[0], r.name).Set(float64(r.leftOut()))
}

// forget removes the metrics of a cluster.
func (m *meshMetrics) forget(source []string, name string) {
	of := append(slices.Clone(source), name)
	for _, v := range []*prometheus.GaugeVec{m.Ready, m.Failures, m.LastFailure} {
		v.DeleteLabelValues(of...)
	}
	m.Unreadable.DeleteLabelValues(source[0], name)
	m.LeftOut.DeleteLabelValues(source[0], name)
	for _, v := range []*prometheus.GaugeVec{m.RemoteServices, m.RemoteExports, m.Revocations} {
		v.DeleteLabelValues(name)
	}
}
