// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package termtest

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"

	"github.com/skep-operator/skep/resources/k8s"
	"github.com/skep-operator/skep/runtime/cell"
	"github.com/skep-operator/skep/runtime/graph"
	"github.com/skep-operator/skep/runtime/health"
	"github.com/skep-operator/skep/runtime/hive"
	"github.com/skep-operator/skep/runtime/lifecycle"
	"github.com/skep-operator/skep/runtime/logging/logtest"
	"github.com/skep-operator/skep/runtime/metrics"
	"github.com/skep-operator/skep/runtime/waittest"
)

// Eventually waits until something holds.
func Eventually(t testing.TB, what string, holds func() bool) {
	t.Helper()
	waittest.Until(t, what, holds)
}

// Operator is a process with a term.
type Operator struct {
	t       testing.TB
	hive    *hive.Hive
	log     *logtest.Buffer
	health  *health.Tree
	metrics *metrics.Registry
	leading k8s.Leading
	term    lifecycle.Term
}

type leadingParams struct {
	cell.In

	Leading k8s.Leading
	Term    lifecycle.Term `name:"leader"`
}

// lead enters the term when the process starts, with a fence that stays open.
func (o *Operator) lead(p leadingParams) lifecycle.Hook {
	o.leading, o.term = p.Leading, p.Term
	fence := k8s.NewFence(k8s.SystemClock, k8s.SystemClock.Now(), time.Hour)
	return lifecycle.Funcs{
		OnStart: func(ctx context.Context) error {
			if err := p.Leading.Open(fence, nil); err != nil {
				return err
			}
			return p.Term.Enter(ctx)
		},
		OnStop: func(ctx context.Context) error {
			defer fence.Close()
			return p.Term.Leave(ctx)
		},
	}
}

// New configures an operator of cells, with a duty in its term. The error is that
// of its options.
func New(t testing.TB, around []cell.Cell, duty cell.Cell, kubeconfig string, args ...string) (*Operator, error) {
	t.Helper()
	t.Setenv(k8s.StrictCause, "1")
	o := &Operator{t: t, log: &logtest.Buffer{}}
	probe := cell.Invoke(func(tree *health.Tree, registry *metrics.Registry) { o.health, o.metrics = tree, registry })
	leading := cell.Module("test.leading", "Enters the term under test", cell.Hook("lead", o.lead))
	all := append(slices.Clone(around), leading, probe, cell.Term("leader", duty))
	o.hive = hive.New("operator", cell.Set(all...),
		hive.LogTo(o.log), hive.Environ(func(string) (string, bool) { return "", false }))
	flags := o.hive.FlagSet()
	if err := flags.Parse(append([]string{"--k8s-kubeconfig-path=" + kubeconfig, "--log-opt=format=json", "--ipam=kubernetes"}, args...)); err != nil {
		return nil, err
	}
	if err := o.hive.Configure(flags); err != nil {
		return nil, err
	}
	return o, o.hive.Build()
}

// Start runs an operator, which stops with the test.
func Start(t testing.TB, around []cell.Cell, duty cell.Cell, kubeconfig string, args ...string) *Operator {
	t.Helper()
	o, err := New(t, around, duty, kubeconfig, args...)
	if err != nil {
		t.Fatal(err)
	}
	if err := o.start(); err != nil {
		t.Fatal(err)
	}
	return o
}

// Run starts an operator that New made, which stops with the test. Several may be
// started at once.
func (o *Operator) Run() {
	if err := o.start(); err != nil {
		o.t.Error(err)
	}
}

func (o *Operator) start() error {
	o.t.Cleanup(o.Stop)
	o.t.Cleanup(func() {
		if o.t.Failed() {
			o.t.Logf("degraded:\n%s\nlog:\n%s", o.Degraded(""), strings.Join(o.Logged(""), "\n"))
		}
	})
	return o.hive.Start(o.t.Context())
}

// Stop leaves the term and stops the process. It may be called again.
func (o *Operator) Stop() {
	if err := o.hive.Stop(context.Background()); err != nil {
		o.t.Error(err)
	}
}

// Again leaves the term and enters it again.
func (o *Operator) Again() {
	o.t.Helper()
	if err := o.term.Leave(o.t.Context()); err != nil {
		o.t.Fatal(err)
	}
	if err := o.term.Enter(o.t.Context()); err != nil {
		o.t.Fatal(err)
	}
}

// Graph is what it is made of.
func (o *Operator) Graph() *graph.Graph { return o.hive.Graph() }

// Written is what it tells the next leader. The term has ended.
func (o *Operator) Written() k8s.Written { return o.leading.Written() }

// Log is what it logs, in JSON.
func (o *Operator) Log() *logtest.Buffer { return o.log }

// Logged are the messages of modules whose id begins so, options aside, each with
// its attributes.
func (o *Operator) Logged(module string) []string {
	o.t.Helper()
	var lines []string
	for line := range strings.Lines(o.log.String()) {
		var fields map[string]any
		if err := json.Unmarshal([]byte(line), &fields); err != nil {
			o.t.Fatalf("%s: %v", line, err)
		}
		text := fmt.Sprint(fields["level"], ": ", fields["msg"])
		if subsys, _ := fields["subsys"].(string); !strings.HasPrefix(subsys, module) || strings.Contains(text, ":   --") {
			continue
		}
		for _, key := range []string{"level", "msg", "time", "subsys"} {
			delete(fields, key)
		}
		lines = append(lines, fmt.Sprintf("%s %v", text, fields))
	}
	return lines
}

// Degraded is what is degraded in modules whose id begins so, and why.
func (o *Operator) Degraded(module string) string {
	var b strings.Builder
	for _, s := range o.health.Degraded() {
		if strings.HasPrefix(s.ID, module) {
			fmt.Fprintf(&b, "%s: %s: %s\n", s.ID, s.Message, s.Error)
		}
	}
	return b.String()
}

// Level is how a part is, "" if it says nothing.
func (o *Operator) Level(id string) health.Level {
	for _, s := range o.health.Snapshot() {
		if s.ID == id {
			return s.Level
		}
	}
	return ""
}

// Metric is the value of a counter or a gauge, 0 if it is not there. The labels
// are in the order of their names.
func (o *Operator) Metric(name string, labels ...string) float64 {
	o.t.Helper()
	for _, m := range o.Samples(name) {
		if m.Name == name && slices.EqualFunc(m.Labels, labels, func(l *dto.LabelPair, value string) bool { return l.GetValue() == value }) {
			return m.Value
		}
	}
	return 0
}

// Sample is the value of a counter or a gauge.
type Sample struct {
	Name   string           // cilium_operator_ aside
	Labels []*dto.LabelPair // in the order of their names
	Value  float64
}

// Label is the value of a label, "" if there is none.
func (s Sample) Label(name string) string {
	for _, l := range s.Labels {
		if l.GetName() == name {
			return l.GetValue()
		}
	}
	return ""
}

// Samples are the metrics whose names begin so, cilium_operator_ aside.
func (o *Operator) Samples(prefix string) []Sample {
	o.t.Helper()
	families, err := o.metrics.Gather()
	if err != nil {
		o.t.Fatal(err)
	}
	var samples []Sample
	for _, f := range families {
		name, ours := strings.CutPrefix(f.GetName(), "cilium_operator_")
		if !ours || !strings.HasPrefix(name, prefix) {
			continue
		}
		for _, m := range f.GetMetric() {
			samples = append(samples, Sample{name, m.GetLabel(), m.GetCounter().GetValue() + m.GetGauge().GetValue()})
		}
	}
	return samples
}
