// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package ingress

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/skep-operator/skep/runtime/metrics"
)

type ingressMetrics struct {
	Ingresses  *prometheus.GaugeVec
	SharedSize prometheus.Gauge
	Conflicts  prometheus.Gauge
}

func newMetrics(f metrics.Factory) *ingressMetrics {
	return &ingressMetrics{
		Ingresses:  f.In("ingress").GaugeVec("ingresses", "Ingresses of the class cilium, by their load balancer: dedicated or shared", "mode"),
		SharedSize: f.In("ingress").Gauge("shared_config_bytes", "Size of the CiliumEnvoyConfig of the shared load balancer, in bytes"),
		Conflicts:  f.In("ingress").Gauge("host_conflicts", "Ingresses that ask for a host or a port of the nodes that an older object of another namespace, or a component of the cluster, has"),
	}
}
