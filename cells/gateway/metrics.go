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
}

func newMetrics(f metrics.Factory) *gatewayMetrics {
	return &gatewayMetrics{
		Gateways: f.In("gateway").GaugeVec("gateways", "Gateways of our classes, by whether they are programmed: true or false", "programmed"),
		Routes:   f.In("gateway").GaugeVec("routes", "Routes with a parent that is served here, by whether all such parents accept them: true or false", "accepted"),
	}
}

func stateOf(ok bool) string {
	if ok {
		return stateYes
	}
	return stateNo
}
