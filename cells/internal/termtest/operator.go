// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package termtest

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"

	"github.com/skep-operator/skep/resources/k8s"
	"github.com/skep-operator/skep/runtime/cell"
	"github.com/skep-operator/skep/runtime/health"
	"github.com/skep-operator/skep/runtime/hive"
	"github.com/skep-operator/skep/runtime/lifecycle"
	"github.com/skep-operator/skep/runtime/metrics"
)

// patience is how long a state may take to come; no test waits for a time.
const patience = time.Minute

// Eventually waits until something holds.
func Eventually(t testing.TB, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !holds(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within %s: %s", patience, what)
		}
	}
}

// Operator is a process with a term.
type Operator struct {
	t       testing.TB
	hive    *hive.Hive
	log     *buffer
	health  *health.Tree
	metrics *metrics.Registry
	term    lifecycle.Term
}

type buffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

type leadingParams struct {
	cell.In

	Leading k8s.Leading
	Term    lifecycle.Term `name:"leader"`
}

// lead enters the term when the process starts, with a fence that stays open.
func (o *Operator) lead(p leadingParams) lifecycle.Hook {
	o.term = p.Term
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
	o := &Operator{t: t, log: &buffer{}}
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
	t.Cleanup(o.Stop)
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("degraded:\n%s\nlog:\n%s", o.Degraded(""), strings.Join(o.Logged(""), "\n"))
		}
	})
	if err := o.hive.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	return o
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
	families, err := o.metrics.Gather()
	if err != nil {
		o.t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() != "cilium_operator_"+name {
			continue
		}
		for _, m := range f.GetMetric() {
			var has []string
			for _, l := range m.GetLabel() {
				has = append(has, l.GetValue())
			}
			if slices.Equal(has, labels) {
				return valueOf(m)
			}
		}
	}
	return 0
}

func valueOf(m *dto.Metric) float64 {
	if m.GetCounter() != nil {
		return m.GetCounter().GetValue()
	}
	return m.GetGauge().GetValue()
}
