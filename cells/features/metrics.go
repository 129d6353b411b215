// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package features

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/skep-operator/skep/runtime/graph"
	"github.com/skep-operator/skep/runtime/metrics"
)

// featureMetrics are 1 for features that are enabled, and 0 for others.
type featureMetrics struct {
	GatewayAPI prometheus.Gauge
	Ingress    prometheus.Gauge
	L7Traffic  prometheus.Gauge
	LBIPAM     prometheus.Gauge
	NodeIPAM   prometheus.Gauge

	// Kubernetes is 1 for the version of the API server, once it is known.
	Kubernetes *prometheus.GaugeVec
}

func newMetrics(f metrics.Factory) *featureMetrics {
	controlPlane := f.In("feature_controlplane")
	f = f.In("feature_adv_connect_and_lb")
	return &featureMetrics{
		GatewayAPI: f.Gauge("gateway_api_enabled", "1 if Gateways are served"),
		Ingress:    f.Gauge("ingress_controller_enabled", "1 if Ingresses are served"),
		L7Traffic:  f.Gauge("l7_aware_traffic_management_enabled", "1 if Envoy balances requests of annotated Services"),
		LBIPAM:     f.Gauge("lb_ipam_enabled", "1 if Services get addresses of pools"),
		NodeIPAM:   f.Gauge("node_ipam_enabled", "1 if Services get addresses of nodes"),
		Kubernetes: controlPlane.GaugeVec("kubernetes_version", "1 for the version of the API server", "version"),
	}
}

// set sets the features by the modules that serve them. One that this operator has no module for is not enabled,
// whatever the options are.
func (m *featureMetrics) set(g *graph.Graph) {
	for id, gauge := range map[string]prometheus.Gauge{
		"gateway":   m.GatewayAPI,
		"ingress":   m.Ingress,
		"servicel7": m.L7Traffic,
		"lbipam":    m.LBIPAM,
		"nodeipam":  m.NodeIPAM,
	} {
		gauge.Set(0)
		if module := g.Module(id); module != nil && module.Enabled {
			gauge.Set(1)
		}
	}
}
