// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package operatortest

import (
	"context"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/skep-operator/skep/resources/agents"
	"github.com/skep-operator/skep/resources/cluster"
	"github.com/skep-operator/skep/resources/cluster/release"
	"github.com/skep-operator/skep/resources/dryrun"
	"github.com/skep-operator/skep/resources/envoy"
	"github.com/skep-operator/skep/resources/explain"
	"github.com/skep-operator/skep/resources/k8s"
	"github.com/skep-operator/skep/resources/leading"
	"github.com/skep-operator/skep/resources/networkpolicy"
	"github.com/skep-operator/skep/resources/outside"
	"github.com/skep-operator/skep/resources/reconcile"
	"github.com/skep-operator/skep/resources/secretref"
	"github.com/skep-operator/skep/resources/stream"
	"github.com/skep-operator/skep/resources/stream/ciliumio"
	"github.com/skep-operator/skep/resources/sweep"
	"github.com/skep-operator/skep/runtime/cell"
	"github.com/skep-operator/skep/runtime/graph"
	"github.com/skep-operator/skep/runtime/health"
	"github.com/skep-operator/skep/runtime/hive"
	"github.com/skep-operator/skep/runtime/lifecycle"
	"github.com/skep-operator/skep/runtime/logging/logtest"
	"github.com/skep-operator/skep/runtime/metrics"
	"github.com/skep-operator/skep/runtime/waittest"
)

// Resources are the process cells that duties share, as every operator has them.
var Resources = []cell.Cell{
	cluster.Cell(cluster.DefaultConfig), release.Cell, explain.Cell, dryrun.Cell, k8s.Cell, outside.Cell,
	reconcile.Cell, sweep.Cell, stream.Cell, ciliumio.Cell, agents.Cell, networkpolicy.Cell, envoy.Cell, secretref.Cell,
}

// Setup is how an operator under test differs from the usual one. The zero value has the
// Resources and enters its term when it starts.
type Setup struct {
	// Process are more cells outside of the term.
	Process []cell.Cell
	// Elector is the cell that enters and leaves the term in place of the test.
	Elector cell.Cell
	// Memory is the limit of the memory of the process, in bytes, by which streams bound large objects. 0 is none.
	Memory int64
}

// Operator is an operator in the test's process.
type Operator struct {
	// Book has its writes, and why they were made.
	Book *explain.History

	t       testing.TB
	hive    *hive.Hive
	log     *logtest.Buffer
	health  *health.Tree
	metrics *metrics.Registry
	leading leading.Session
	term    lifecycle.Term
	fence   atomic.Pointer[leading.Fence] // of the term that it is in, nil outside
	stop    sync.Once
}

// Start runs an operator with a duty in its term until the test ends. A kubeconfig that
// is "" is none.
func Start(t testing.TB, duty cell.Cell, kubeconfig string, args ...string) *Operator {
	t.Helper()
	return Setup{}.Start(t, duty, kubeconfig, args...)
}

// New is Start without the start: it configures and builds, and its error is that of the
// options or of the cells.
func New(t testing.TB, duty cell.Cell, kubeconfig string, args ...string) (*Operator, error) {
	t.Helper()
	return Setup{}.New(t, duty, kubeconfig, args...)
}

// Start is as the function Start.
func (s Setup) Start(t testing.TB, duty cell.Cell, kubeconfig string, args ...string) *Operator {
	t.Helper()
	o, err := s.New(t, duty, kubeconfig, args...)
	if err != nil {
		t.Fatal(err)
	}
	if err := o.start(); err != nil {
		t.Fatal(err)
	}
	return o
}

// New is as the function New.
func (s Setup) New(t testing.TB, duty cell.Cell, kubeconfig string, args ...string) (*Operator, error) {
	t.Helper()
	if !inMain {
		t.Fatal("the package's TestMain does not call operatortest.Main")
	}
	o := &Operator{t: t, log: &logtest.Buffer{}}
	o.hive = hive.New("operator", s.cells(o, duty), hive.LogTo(o.log), hive.MetricsNamespace("cilium_operator"), hive.StartStopTimeouts(waittest.Limit, waittest.Limit),
		hive.Environ(func(string) (string, bool) { return "", false }))
	defaults := []string{"--log-opt=format=json", "--ipam=kubernetes"}
	if kubeconfig != "" {
		defaults = append(defaults, "--k8s-kubeconfig-path="+kubeconfig)
	}
	flags := o.hive.FlagSet()
	if err := flags.Parse(append(defaults, args...)); err != nil {
		return nil, err
	}
	if err := o.hive.Configure(flags); err != nil {
		return nil, err
	}
	if s.Memory > 0 { // while streams are made: the test needs more
		defer debug.SetMemoryLimit(debug.SetMemoryLimit(s.Memory))
	}
	return o, o.hive.Build()
}

type probeParams struct {
	cell.In

	Book    *explain.History
	Health  *health.Tree
	Metrics *metrics.Registry
	Leading leading.Session
}

type termParams struct {
	cell.In

	Term lifecycle.Term `name:"leader"`
}

func (s Setup) cells(o *Operator, duty cell.Cell) cell.Cells {
	all := append(slices.Clone(Resources), s.Process...)
	all = append(all, cell.Invoke(func(p probeParams) {
		o.Book, o.health, o.metrics, o.leading = p.Book, p.Health, p.Metrics, p.Leading
	}))
	elector := s.Elector
	if elector == nil {
		elector = cell.Module("test.leading", "Enters the term under test", cell.Hook("lead", o.lead))
	}
	return cell.Set(append(all, elector, cell.Term("leader", duty))...)
}

// lead enters the term when the process starts.
func (o *Operator) lead(p termParams) lifecycle.Hook {
	o.term = p.Term
	return lifecycle.Funcs{OnStart: o.enter, OnStop: o.leave}
}

// enter opens a fence that stays open, and enters the term.
func (o *Operator) enter(ctx context.Context) error {
	fence := leading.NewFence(leading.SystemClock, leading.SystemClock.Now(), time.Hour)
	if err := o.leading.Open(fence, nil); err != nil {
		return err
	}
	o.fence.Store(fence)
	return o.term.Enter(ctx)
}

func (o *Operator) leave(ctx context.Context) error {
	fence := o.fence.Swap(nil)
	if fence == nil {
		return nil
	}
	defer fence.Close()
	return o.term.Leave(ctx)
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
			log := o.log.WithoutOptions()
			if strings.HasPrefix(log, "{") {
				log = strings.Join(o.Messages(""), "\n")
			}
			o.t.Logf("degraded:\n%s\nlog:\n%s", o.Degraded(""), log)
		}
	})
	return o.hive.Start(o.t.Context())
}

// Stop leaves the term and stops the process. It may be called again.
func (o *Operator) Stop() {
	o.stop.Do(func() {
		if err := o.hive.Stop(context.Background()); err != nil {
			o.t.Errorf("stop the operator: %v", err)
		}
	})
}

// EnterTerm enters the term after LeaveTerm.
func (o *Operator) EnterTerm() {
	o.t.Helper()
	if err := o.enter(o.t.Context()); err != nil {
		o.t.Fatal(err)
	}
}

// LeaveTerm leaves the term in order, if the operator is in it.
func (o *Operator) LeaveTerm() {
	o.t.Helper()
	if err := o.leave(context.Background()); err != nil {
		o.t.Fatal(err)
	}
}

// ReenterTerm leaves the term and enters the next one.
func (o *Operator) ReenterTerm() {
	o.t.Helper()
	o.LeaveTerm()
	o.EnterTerm()
}

// LoseLease closes the fence while the term goes on, as when a lease expires: nothing
// more is written.
func (o *Operator) LoseLease() { o.fence.Load().Close() }

// Graph is the graph of its cells.
func (o *Operator) Graph() *graph.Graph { return o.hive.Graph() }

// Handover is what it leaves for the next leader. The term has ended.
func (o *Operator) Handover() leading.WriteProgress { return o.leading.WriteProgress() }
