// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package hive_test

import (
	"slices"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/skep-operator/skep/runtime/cell"
	"github.com/skep-operator/skep/runtime/hive"
	"github.com/skep-operator/skep/runtime/lifecycle"
	"github.com/skep-operator/skep/runtime/metrics"
)

type factoryMetrics struct {
	Done  prometheus.Counter
	Held  *prometheus.GaugeVec
	Size  prometheus.Gauge
	Other prometheus.Gauge
}

func newFactoryMetrics(f metrics.Factory) *factoryMetrics {
	return &factoryMetrics{
		Done: f.Counter("done_total", "Done"), Held: f.GaugeVec("held", "Held", "by"), Size: f.Gauge("size", "Size"),
		Other: f.In("").Gauge("other", "Other"),
	}
}

// Names of metrics start with the embedder's namespace and the module, in the process and in a term; what gauges of a
// term say ends with it.
func TestMetricsFactory(t *testing.T) {
	var term lifecycle.Term
	var registry *metrics.Registry
	var made *factoryMetrics
	h := newHive(cell.Set(
		cell.Invoke(func(p struct {
			cell.In
			Term     lifecycle.Term `name:"leader"`
			Registry *metrics.Registry
		}) {
			term, registry = p.Term, p.Registry
		}),
		cell.Term("leader", cell.Module("ipam.multi-pool", "Has metrics", cell.Metrics(newFactoryMetrics),
			cell.Invoke(func(m *factoryMetrics) {
				made = m
				m.Done.Inc()
				m.Held.WithLabelValues("x").Set(1)
				m.Size.Set(2)
			})))),
		hive.MetricsNamespace("acme"))
	declared, err := h.DeclaredMetrics()
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"acme_ipam_multi_pool_done_total", "acme_ipam_multi_pool_held", "acme_ipam_multi_pool_size", "acme_other"} {
		if !slices.ContainsFunc(declared, func(m metrics.Metric) bool { return m.Name == name }) {
			t.Errorf("no metric %s", name)
		}
	}
	if err := h.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = h.Stop(t.Context()) }()
	if err := term.Enter(t.Context()); err != nil {
		t.Fatal(err)
	}
	if made == nil {
		t.Fatal("not built")
	}
	if got := values(t, registry); got["acme_ipam_multi_pool_size"] != 2 || got["acme_ipam_multi_pool_held"] != 1 {
		t.Errorf("in the term: %v", got)
	}
	if err := term.Leave(t.Context()); err != nil {
		t.Fatal(err)
	}
	got := values(t, registry)
	if _, held := got["acme_ipam_multi_pool_held"]; held || got["acme_ipam_multi_pool_size"] != 0 || got["acme_ipam_multi_pool_done_total"] != 1 {
		t.Errorf("after the term: %v", got)
	}
}

// values are those of the first series of each metric.
func values(t *testing.T, g prometheus.Gatherer) map[string]float64 {
	t.Helper()
	families, err := g.Gather()
	if err != nil {
		t.Fatal(err)
	}
	list := map[string]float64{}
	for _, f := range families {
		m := f.GetMetric()[0]
		list[f.GetName()] = m.GetGauge().GetValue() + m.GetCounter().GetValue()
	}
	return list
}
