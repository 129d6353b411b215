// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package metrics_test

import (
	"errors"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/skep-operator/skep/runtime/metrics"
	"github.com/skep-operator/skep/runtime/waittest"
)

func TestMain(m *testing.M) { waittest.Main(m) }

func counter(name string) prometheus.Counter {
	return prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: "Help of " + name})
}

func names(t *testing.T, r *metrics.Registry) []string {
	t.Helper()
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var list []string
	for _, f := range families {
		list = append(list, f.GetName())
	}
	return list
}

func wantNames(t *testing.T, r *metrics.Registry, want ...string) {
	t.Helper()
	if diff := cmp.Diff(want, names(t, r)); diff != "" {
		t.Error("gathered:", diff)
	}
	var listed []string
	for _, m := range r.List() {
		listed = append(listed, m.Name)
	}
	if diff := cmp.Diff(want, listed); diff != "" {
		t.Error("listed:", diff)
	}
}

func TestEachModuleDropsItsOwn(t *testing.T) {
	r := metrics.NewRegistry()
	a, b := r.Module("a"), r.Module("b")
	a.MustRegister(counter("a1"), counter("a2"))
	b.MustRegister(counter("b1"))
	wantNames(t, r, "a1", "a2", "b1")
	a.Drop()
	wantNames(t, r, "b1")
	a.Drop()
	a.MustRegister(counter("a1")) // a rebuilt module registers again
	wantNames(t, r, "a1", "b1")
}

func TestRegisterersOfOneModuleAreApart(t *testing.T) {
	r := metrics.NewRegistry()
	lasting, term := r.Module("m"), r.Module("m")
	lasting.MustRegister(counter("lasting"))
	term.MustRegister(counter("term"))
	term.Drop()
	wantNames(t, r, "lasting")
}

func TestADuplicateIsAnErrorThatNamesTheModule(t *testing.T) {
	r := metrics.NewRegistry()
	r.Module("a").MustRegister(counter("x"))
	b := r.Module("b")
	err := b.Register(counter("x"))
	if !errors.As(err, new(prometheus.AlreadyRegisteredError)) || !strings.HasPrefix(err.Error(), "registering x of b: ") || !strings.HasSuffix(err.Error(), " (it is registered by a)") {
		t.Error(err)
	}
	b.Drop() // must not take away what is not its own
	wantNames(t, r, "x")
	defer func() {
		if recover() == nil {
			t.Error("MustRegister did not panic")
		}
	}()
	b.MustRegister(counter("x"))
}

// sliceCollector cannot be compared.
type sliceCollector []prometheus.Collector

func (s sliceCollector) Describe(ch chan<- *prometheus.Desc) {
	for _, c := range s {
		c.Describe(ch)
	}
}

func (s sliceCollector) Collect(ch chan<- prometheus.Metric) {
	for _, c := range s {
		c.Collect(ch)
	}
}

func TestUnregister(t *testing.T) {
	r := metrics.NewRegistry()
	m, x := r.Module("m"), counter("x")
	m.MustRegister(x)
	if !m.Unregister(x) || m.Unregister(x) {
		t.Error("unregistered not exactly once")
	}
	wantNames(t, r)
	many := sliceCollector{counter("y"), counter("z")}
	m.MustRegister(many)
	wantNames(t, r, "y", "z")
	if !m.Unregister(many) {
		t.Error("not unregistered")
	}
	if got := names(t, r); len(got) > 0 {
		t.Error(got)
	}
}

func TestTwoRegistriesShareNothing(t *testing.T) {
	a, b := metrics.NewRegistry(), metrics.NewRegistry()
	a.Module("m").MustRegister(counter("x"))
	b.Module("m").MustRegister(counter("x"))
	b.Module("m").Drop()
	wantNames(t, a, "x")
}

func TestCollectors(t *testing.T) {
	good := &struct {
		A, B  prometheus.Collector
		inner int
	}{A: counter("a"), B: counter("b")}
	list, err := metrics.Collectors(good)
	if err != nil || len(list) != 2 || list[0] != good.A || list[1] != good.B {
		t.Error(list, err)
	}
	_, err = metrics.Collectors(&struct {
		A *prometheus.CounterVec
		B int
	}{})
	if err == nil || err.Error() != `field A of *struct { A *prometheus.CounterVec; B int } is not set
field B of *struct { A *prometheus.CounterVec; B int } is no collector` {
		t.Error(err)
	}
	for _, bad := range []any{nil, 3, (*struct{})(nil)} {
		if _, err := metrics.Collectors(bad); err == nil {
			t.Errorf("%T is no error", bad)
		}
	}
}

func TestDescribe(t *testing.T) {
	labels := []string{"level", "subsystem"}
	collectors := []prometheus.Collector{
		prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: "ns", Name: "b", Help: `Says "b", constLabels: {}`}, labels),
		prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "gv", ConstLabels: prometheus.Labels{"k": "v"}}, labels),
		prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "hv"}, labels[:1]),
		prometheus.NewSummaryVec(prometheus.SummaryOpts{Name: "sv"}, labels[:1]),
		counter("c"),
		prometheus.NewGauge(prometheus.GaugeOpts{Name: "g"}),
		prometheus.NewHistogram(prometheus.HistogramOpts{Name: "h"}),
		prometheus.NewSummary(prometheus.SummaryOpts{Name: "s"}),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "f"}, func() float64 { t.Error("collected"); return 0 }),
		prometheus.V2.NewCounterVec(prometheus.CounterVecOpts{CounterOpts: prometheus.CounterOpts{Name: "constrained"}, VariableLabels: prometheus.ConstrainedLabels{
			{Name: "x", Constraint: func(s string) string { return s }}, {Name: "y"},
		}}),
	}
	want := []metrics.Metric{
		{Name: "c", Type: "counter", Help: "Help of c", Module: "m"},
		{Name: "constrained", Type: "counter", Labels: []string{"x", "y"}, Module: "m"},
		{Name: "f", Type: "untyped", Module: "m"},
		{Name: "g", Type: "gauge", Module: "m"},
		{Name: "gv", Type: "gauge", Labels: labels, Module: "m"},
		{Name: "h", Type: "histogram", Module: "m"},
		{Name: "hv", Type: "histogram", Labels: labels[:1], Module: "m"},
		{Name: "ns_b", Type: "counter", Labels: labels, Help: `Says "b", constLabels: {}`, Module: "m"},
		{Name: "s", Type: "summary", Module: "m"},
		{Name: "sv", Type: "summary", Labels: labels[:1], Module: "m"},
	}
	if diff := cmp.Diff(want, metrics.Describe("m", collectors)); diff != "" {
		t.Error(diff)
	}
}

func TestConcurrentUse(t *testing.T) {
	r := metrics.NewRegistry()
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 50 {
				m := r.Module("m")
				_ = m.Register(counter("x"))
				r.List()
				m.Drop()
			}
		})
	}
	wg.Wait()
	wantNames(t, r)
}
