// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package spire

import (
	"context"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/skep-operator/skep/resources/cluster"
	"github.com/skep-operator/skep/resources/dryrun"
	"github.com/skep-operator/skep/resources/explain"
	"github.com/skep-operator/skep/resources/k8s"
	"github.com/skep-operator/skep/resources/leading"
	"github.com/skep-operator/skep/resources/operatortest"
	"github.com/skep-operator/skep/resources/outside"
	"github.com/skep-operator/skep/resources/reconcile"
	"github.com/skep-operator/skep/resources/spire"
	"github.com/skep-operator/skep/resources/spire/spiretest"
	"github.com/skep-operator/skep/resources/stream"
	"github.com/skep-operator/skep/resources/stream/ciliumio"
	"github.com/skep-operator/skep/resources/stream/slim"
	"github.com/skep-operator/skep/runtime/cell"
	"github.com/skep-operator/skep/runtime/health"
	"github.com/skep-operator/skep/runtime/logging/logtest"
	"github.com/skep-operator/skep/runtime/metrics"
)

const domain = "spiffe.cilium"

// duty is the duty without an API server: CiliumIdentities of the test, and a simulated SPIRE.
type duty struct {
	t              testing.TB
	spire          *spiretest.Server
	identities     *stream.Local[ciliumio.Identity]
	config         spire.Config
	cluster        cluster.Config
	plan           *dryrun.Plan
	client         k8s.Client
	maxShare       float64
	interval       time.Duration
	withoutObjects bool // identities are kept in etcd alone
	log            *logtest.Buffer

	// Of a term:
	fence      *leading.Fence
	book       *explain.History
	tree       *health.Tree
	controller *controller
	end        func()
}

func newDuty(t testing.TB, s *spiretest.Server) *duty {
	t.Helper()
	l, err := stream.NewLocal[ciliumio.Identity]()
	if err != nil {
		t.Fatal(err)
	}
	l.Synced()
	c := spire.DefaultConfig
	c.MeshAuthSPIREAgentSocket, c.MeshAuthSPIREServerAddress = s.Agent.Socket, s.Address()
	return &duty{t: t, spire: s, identities: l, config: c, cluster: cluster.DefaultConfig, maxShare: 1, interval: time.Hour, log: &logtest.Buffer{}}
}

// lead begins a term.
func (d *duty) lead() {
	d.t.Helper()
	info := cell.ModuleInfo{ID: "auth.spire", Term: "leader"}
	d.book, d.tree, d.fence = explain.NewHistory(), health.NewTree(), leading.Unfenced()
	log, reporter := slog.New(slog.NewTextHandler(d.log, nil)), d.tree.Reporter(info.ID)
	connection, err := spire.NewConnection(d.config, d.client, log)
	if err != nil {
		d.t.Fatal(err)
	}
	var objects *identities
	if !d.withoutObjects {
		objects = newIdentities(d.identities)
	}
	d.controller = newController(params{
		Cluster: d.cluster, Identities: objects, Metrics: newMetrics(metrics.Factory{}), Log: log,
		SPIRE: spire.Deps{
			Connection: connection, Health: reporter, Log: log, MaxShare: d.maxShare,
			Scope: outside.Scope{Module: info, Log: log, Health: reporter, Fence: d.fence, Book: d.book, Plan: d.plan},
			Queue: reconcile.Deps{Module: info, Log: log, Health: reporter, Book: d.book, Plan: d.plan},
		},
	})
	d.controller.registrar.Interval = d.interval
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { _ = connection.Run(ctx) })
	running.Go(func() { _ = d.controller.run(ctx) })
	running.Go(func() { _ = d.controller.watch(ctx) })
	d.end = sync.OnceFunc(func() {
		cancel()
		running.Wait()
		connection.Close()
		d.fence.Close()
	})
	d.t.Cleanup(d.end)
}

// enter is lead for a plan.
func (d *duty) enter(context.Context) error {
	d.lead()
	return nil
}

// restart ends the term and begins another.
func (d *duty) restart() {
	d.t.Helper()
	d.end()
	d.lead()
}

func (d *duty) create(names ...string) {
	for _, name := range names {
		object := &ciliumio.Identity{}
		object.Name = name
		d.identities.Upsert(object)
	}
}

func (d *duty) createRange(from, to int) {
	for n := from; n < to; n++ {
		d.create(strconv.Itoa(n))
	}
}

func (d *duty) delete(name string) { d.identities.Delete(slim.Key{Name: name}) }

// degraded is what is degraded now.
func (d *duty) degraded() string {
	var all []string
	for _, s := range d.tree.Degraded() {
		all = append(all, fmt.Sprint(s.ID, ": ", s.Message, ": ", s.Error))
	}
	return strings.Join(all, "\n")
}

func (d *duty) eventually(what string, holds func() bool) {
	d.t.Helper()
	defer func() {
		if d.t.Failed() {
			d.t.Logf("calls: %v\ndegraded: %s\nlog: %s", d.spire.Calls(), d.degraded(), d.log)
		}
	}()
	operatortest.Eventually(d.t, what, holds)
}

// wantEntries waits until identities have entries and others have none.
func (d *duty) wantEntries(present ...string) {
	d.t.Helper()
	d.eventually(fmt.Sprint("the entries are those of ", present), func() bool {
		entries := d.spire.Entries()
		for _, name := range present {
			if _, ok := entries["/identity/"+name]; !ok {
				return false
			}
		}
		return len(entries) == len(present)
	})
}

// compared waits until all entries were compared, with whatever follows from it.
func (d *duty) compared() {
	d.t.Helper()
	d.eventually("all entries are compared", func() bool {
		return testutil.ToFloat64(d.controller.Metrics.Compared) > 0 && testutil.ToFloat64(d.controller.Metrics.Entries.WithLabelValues(spire.StatePresent)) > 0
	})
}

func (d *duty) metric(state string) float64 {
	return testutil.ToFloat64(d.controller.Metrics.Entries.WithLabelValues(state))
}
