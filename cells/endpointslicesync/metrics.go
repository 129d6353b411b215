// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package endpointslicesync

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/skep-operator/skep/runtime/metrics"
)

type sliceMetrics struct {
	DesiredSlices    prometheus.Gauge
	Slices           prometheus.Gauge
	DesiredEndpoints prometheus.Gauge
	LeftOut          prometheus.Gauge
	Added            prometheus.Histogram
	Removed          prometheus.Histogram
	Changes          *prometheus.CounterVec
	ChangedPerSync   *prometheus.HistogramVec
	Syncs            *prometheus.CounterVec
}

func newMetrics(f metrics.Factory) *sliceMetrics {
	f = f.In("clustermesh")
	buckets := prometheus.ExponentialBuckets(2, 2, 15)
	return &sliceMetrics{
		DesiredSlices:    f.Gauge("desired_endpoint_slices", "EndpointSlices that the endpoints of remote clusters need"),
		Slices:           f.Gauge("num_endpoint_slices", "EndpointSlices of remote clusters that exist"),
		DesiredEndpoints: f.Gauge("endpoints_desired", "Endpoints of remote clusters in EndpointSlices"),
		LeftOut:          f.Gauge("left_out_endpoints", "Endpoints of remote clusters without an EndpointSlice, as their Service has too many"),
		Added:            f.Histogram("endpoints_added_per_sync", "Endpoints that a reconciliation of a Service added", buckets),
		Removed:          f.Histogram("endpoints_removed_per_sync", "Endpoints that a reconciliation of a Service removed", buckets),
		Changes:          f.CounterVec("endpoint_slice_changes", "EndpointSlices written", "operation"),
		ChangedPerSync:   f.HistogramVec("endpointslices_changed_per_sync", "EndpointSlices that a reconciliation of a Service wrote", buckets, "topology"),
		Syncs:            f.CounterVec("endpoint_slice_syncs", "Reconciliations of Services, by result", "result"),
	}
}
