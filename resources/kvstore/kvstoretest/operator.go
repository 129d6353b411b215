// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package kvstoretest

import (
	"context"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"

	"github.com/skep-operator/skep/resources/cluster"
	"github.com/skep-operator/skep/resources/explain"
	"github.com/skep-operator/skep/resources/k8s"
	"github.com/skep-operator/skep/resources/kvstore"
	"github.com/skep-operator/skep/resources/reconcile"
	"github.com/skep-operator/skep/runtime/cell"
	"github.com/skep-operator/skep/runtime/cell/celltest"
	"github.com/skep-operator/skep/runtime/health"
	"github.com/skep-operator/skep/runtime/hive"
	"github.com/skep-operator/skep/runtime/lifecycle"
	"github.com/skep-operator/skep/runtime/logging/logtest"
	"github.com/skep-operator/skep/runtime/metrics"
	"github.com/skep-operator/skep/runtime/waittest"
)

// Operator runs duties in a term.
type Operator struct {
	Book *explain.Book

	t        testing.TB
	hive     *hive.Hive
	log      *logtest.Buffer
	health   *health.Tree
	registry *metrics.Registry
	leading  k8s.Leading
	term     lifecycle.Term
	fence    *k8s.Fence // of the term that it is in, nil outside
	stop     sync.Once
}

// Args are the options of an operator that has its key-value store at an
// endpoint.
func Args(endpoint string, more ...string) []string {
	return append([]string{
		"--kvstore=etcd", "--kvstore-opt=etcd.qps=10000,etcd.address=" + endpoint,
		"--k8s-api-server=http://127.0.0.1:1", "--ipam=kubernetes",
	}, more...)
}

// Cells are what duties that write to etcd ask things of, the kvstore aside,
// which is of their term.
var Cells = []cell.Cell{cluster.Cell(cluster.DefaultConfig), explain.Cell, k8s.Cell, reconcile.Cell}

// Main runs the tests of a package whose duties write to etcd: a write that does
// not say why fails them, and so does a goroutine that is left.
func Main(m *testing.M) {
	os.Setenv(k8s.StrictCause, "1")
	waittest.Main(m)
}

// Away are options of celltest.Check for a duty that writes to etcd. Nothing
// listens there: an etcd that is away keeps nothing from starting or stopping.
func Away(args ...string) []celltest.Option {
	return []celltest.Option{
		celltest.InTerm("leader"), celltest.With(append(slices.Clone(Cells), kvstore.Cell)...),
		celltest.Args(Args("http://127.0.0.1:1", args...)...), celltest.OffArgs("--kvstore="),
	}
}

// Lead starts an operator that leads until the test ends.
func Lead(t testing.TB, duties []cell.Cell, args []string) *Operator {
	t.Helper()
	o := &Operator{t: t, log: &logtest.Buffer{}}
	probe := cell.Invoke(func(p probeParams) {
		o.Book, o.health, o.registry, o.leading, o.term = p.Book, p.Health, p.Registry, p.Leading, p.Term
	})
	all := append(append([]cell.Cell{probe}, Cells...), cell.Term("leader", append(duties, kvstore.Cell)...))
	o.hive = hive.New("operator", cell.Set(all...), hive.LogTo(o.log),
		hive.Environ(func(string) (string, bool) { return "", false }), hive.Limits(waittest.Limit, waittest.Limit))
	flags := o.hive.FlagSet()
	if err := flags.Parse(args); err != nil {
		t.Fatal(err)
	}
	if err := o.hive.Configure(flags); err != nil {
		t.Fatal(err)
	}
	if err := o.hive.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		o.Stop()
		if t.Failed() {
			t.Logf("log of the operator:\n%s", o.log.WithoutOptions())
		}
	})
	o.Enter()
	return o
}

type probeParams struct {
	cell.In

	Book     *explain.Book
	Health   *health.Tree
	Registry *metrics.Registry
	Leading  k8s.Leading
	Term     lifecycle.Term `name:"leader"`
}

// Enter enters the term, with a fence that stays open until it is left.
func (o *Operator) Enter() {
	o.t.Helper()
	o.fence = k8s.NewFence(k8s.SystemClock, k8s.SystemClock.Now(), time.Hour)
	if err := o.leading.Open(o.fence, nil); err != nil {
		o.t.Fatal(err)
	}
	if err := o.term.Enter(o.t.Context()); err != nil {
		o.t.Fatal(err)
	}
}

// Leave leaves the term in order, if it is in one.
func (o *Operator) Leave() {
	o.t.Helper()
	if o.fence == nil {
		return
	}
	if err := o.term.Leave(context.Background()); err != nil {
		o.t.Error(err)
	}
	o.fence.Close()
	o.fence = nil
}

// LoseLease shuts the fence of a term that nobody has left yet.
func (o *Operator) LoseLease() { o.fence.Close() }

// Stop stops the operator in order. A second call does nothing.
func (o *Operator) Stop() {
	o.t.Helper()
	o.stop.Do(func() {
		o.Leave()
		if err := o.hive.Stop(context.Background()); err != nil {
			o.t.Error(err)
		}
	})
}

// Logged is how many lines of the log have all the words.
func (o *Operator) Logged(words ...string) int { return o.log.Count(words...) }

// Degraded are the parts below an id that are degraded, with their errors.
func (o *Operator) Degraded(id string) map[string]string {
	found := map[string]string{}
	for _, s := range o.health.Degraded() {
		if s.ID == id || strings.HasPrefix(s.ID, id+".") {
			found[s.ID] = s.Error
		}
	}
	return found
}

// Metric is the sum of a metric of the given name, cilium_operator_ aside.
func (o *Operator) Metric(name string) float64 {
	o.t.Helper()
	families, err := o.registry.Gather()
	if err != nil {
		o.t.Fatal(err)
	}
	sum, found := 0.0, false
	for _, f := range families {
		if f.GetName() == "cilium_operator_"+name {
			found = true
			for _, m := range f.GetMetric() {
				sum += number(m)
			}
		}
	}
	if !found {
		o.t.Errorf("there is no metric %s", name)
	}
	return sum
}

func number(m *dto.Metric) float64 {
	if g := m.GetGauge(); g != nil {
		return g.GetValue()
	}
	return m.GetCounter().GetValue()
}
