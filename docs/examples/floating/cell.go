// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package main

import (
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"

	"github.com/skep-operator/skep/resources/reconcile"
	"github.com/skep-operator/skep/resources/stream"
	"github.com/skep-operator/skep/resources/stream/slim"
	"github.com/skep-operator/skep/runtime/cell"
	"github.com/skep-operator/skep/runtime/metrics"
)

// Cell gives LoadBalancer Services addresses.
var Cell = cell.Module("fjord.floating", "Gives LoadBalancer Services addresses from Fjord's API",
	cell.Config(Config{FjordQPS: 5}),
	cell.EnabledBy(cell.When("an address API is given", []string{"fjord-api"}, func(c Config) bool { return c.FjordAPI != "" })),
	cell.Metrics(newMetrics),
	stream.Provide(services),
	reconcile.Controller(newController,
		reconcile.For[*controller](services),
		reconcile.Writes[*controller](services.Resource(), "status")),
)

// Config is the address API.
type Config struct {
	FjordAPI string  `flag:"fjord-api" usage:"URL of the address API; empty disables it"`
	FjordQPS float64 `flag:"fjord-qps" usage:"Requests per second to the address API" min:"0.1" max:"1000"`
}

// service is what this duty reads of a Service; nothing else is kept in memory.
type service struct {
	serviceMeta `json:"metadata"`
	Spec        struct {
		Type slim.String `json:"type"`
	} `json:"spec"`
}

type serviceMeta struct {
	slim.Meta
	Finalizers        []slim.String `json:"finalizers"`
	DeletionTimestamp slim.Time     `json:"deletionTimestamp"`
}

var services = stream.Core[service, corev1.Service](corev1.SchemeGroupVersion.WithResource("services"))

type floatMetrics struct{ Requests *prometheus.CounterVec }

func newMetrics(f metrics.Factory) *floatMetrics {
	return &floatMetrics{Requests: f.CounterVec("requests_total", "Requests to the address API, by method", "method")}
}
