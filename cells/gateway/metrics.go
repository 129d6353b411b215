// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package gateway

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/skep-operator/skep/runtime/metrics"
)

// The states of Gateways and routes.
const (
	stateYes = "true"
	stateNo  = "false"
)

type gatewayMetrics struct {
	Gateways *prometheus.GaugeVec
	Routes   *prometheus.GaugeVec
	// Conflicts is the sum of the conflicts of all Gateways.
	Conflicts prometheus.Gauge
}

func newMetrics(f metrics.Factory) *gatewayMetrics {
	return &gatewayMetrics{
		Gateways:  f.In("gateway").GaugeVec("gateways", "Gateways of our classes, by whether they are programmed: true or false", "programmed"),
		Routes:    f.In("gateway").GaugeVec("routes", "Routes with a parent that is served here, by whether all such parents accept them: true or false", "accepted"),
		Conflicts: f.In("gateway").Gauge("conflicts", "Routes, listeners of ListenerSets, and ports of the nodes of Gateways that are not served since an older object of another namespace, or a component of the cluster, has the host or the port"),
	}
}

func stateOf(ok bool) string {
	if ok {
		return stateYes
	}
	return stateNo
}
