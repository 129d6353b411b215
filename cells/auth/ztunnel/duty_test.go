// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package ztunnel

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/skep-operator/skep/resources/dryrun"
	"github.com/skep-operator/skep/resources/explain"
	"github.com/skep-operator/skep/resources/leading"
	"github.com/skep-operator/skep/resources/operatortest"
	"github.com/skep-operator/skep/resources/outside"
	"github.com/skep-operator/skep/resources/reconcile"
	"github.com/skep-operator/skep/resources/spire"
	"github.com/skep-operator/skep/resources/spire/spiretest"
	"github.com/skep-operator/skep/resources/stream"
	"github.com/skep-operator/skep/resources/stream/slim"
	"github.com/skep-operator/skep/runtime/cell"
	"github.com/skep-operator/skep/runtime/health"
	"github.com/skep-operator/skep/runtime/logging/logtest"
	"github.com/skep-operator/skep/runtime/metrics"
)

const domain = "spiffe.cilium"

// duty is the duty without an API server: enrolled Namespaces and ServiceAccounts of the test, and a simulated SPIRE.
type duty struct {
	t          testing.TB
	spire      *spiretest.Server
	namespaces *stream.Local[namespace]
	accounts   *stream.Local[serviceAccount]
	// The streams that the duty gets: those above, unless a test replaces them.
	namespaceStream stream.Resource[namespace]
	accountStream   stream.Resource[serviceAccount]
	plan            *dryrun.Plan
	maxShare        float64
	interval        time.Duration
	log             *logtest.Buffer

	// Of a term:
	fence      *leading.Fence
	book       *explain.History
	tree       *health.Tree
	controller *controller
	end        func()
}

func newDuty(t testing.TB, s *spiretest.Server) *duty {
	t.Helper()
	d := &duty{t: t, spire: s, maxShare: 1, interval: time.Hour, log: &logtest.Buffer{}}
	var err error
	if d.namespaces, err = stream.NewLocal[namespace](); err != nil {
		t.Fatal(err)
	}
	if d.accounts, err = stream.NewLocal[serviceAccount](); err != nil {
		t.Fatal(err)
	}
	d.namespaceStream, d.accountStream = d.namespaces, d.accounts
	d.namespaces.Synced()
	d.accounts.Synced()
	return d
}

// lead begins a term.
func (d *duty) lead() {
	d.t.Helper()
	info := cell.ModuleInfo{ID: "auth.ztunnel", Term: "leader"}
	d.book, d.tree, d.fence = explain.NewHistory(), health.NewTree(), leading.Unfenced()
	log, reporter := slog.New(slog.NewTextHandler(d.log, nil)), d.tree.Reporter(info.ID)
	config := spire.DefaultConfig
	config.MeshAuthSPIREAgentSocket, config.MeshAuthSPIREServerAddress = d.spire.Agent.Socket, d.spire.Address()
	connection, err := spire.NewConnection(config, nil, log)
	if err != nil {
		d.t.Fatal(err)
	}
	d.controller = newController(params{
		Namespaces: d.namespaceStream, Accounts: d.accountStream, Metrics: newMetrics(metrics.Factory{}), Log: log,
		SPIRE: spire.Deps{
			Connection: connection, Health: reporter, Log: log, MaxShare: d.maxShare,
			Scope: outside.Scope{Module: info, Log: log, Health: reporter, Fence: d.fence, Book: d.book, Plan: d.plan},
			Queue: reconcile.Deps{Module: info, Log: log, Health: reporter, Book: d.book, Plan: d.plan},
		},
	})
	d.controller.registrar.Interval = d.interval
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	for _, job := range []func(context.Context) error{
		connection.Run, d.controller.run, d.controller.watchNamespaces, d.controller.watchServiceAccounts,
	} {
		running.Go(func() { _ = job(ctx) })
	}
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

func (d *duty) enrol(names ...string) {
	for _, name := range names {
		object := &namespace{}
		object.Name = name
		d.namespaces.Upsert(object)
	}
}

func (d *duty) disenrol(name string) { d.namespaces.Delete(slim.Key{Name: name}) }

// create creates, or updates, ServiceAccounts given as namespace/name.
func (d *duty) create(accounts ...string) {
	for _, account := range accounts {
		namespace, name, _ := strings.Cut(account, "/")
		object := &serviceAccount{}
		object.Namespace, object.Name = slim.MakeString(namespace), name
		d.accounts.Upsert(object)
	}
}

func (d *duty) delete(account string) {
	namespace, name, _ := strings.Cut(account, "/")
	d.accounts.Delete(slim.Key{Namespace: namespace, Name: name})
}

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
			d.t.Logf("calls: %v\nentries: %v\ndegraded: %s\nlog: %s", d.spire.Calls(), d.spire.Entries(), d.degraded(), d.log)
		}
	}()
	operatortest.Eventually(d.t, what, holds)
}

// wantEntries waits until these ServiceAccounts have entries, and nothing else has.
func (d *duty) wantEntries(accounts ...string) {
	d.t.Helper()
	d.eventually(fmt.Sprint("the entries are those of ", accounts), func() bool { return hasEntries(d.spire, accounts) && d.spire.Len() == len(accounts) })
}

// hasEntries reports whether ServiceAccounts, given as namespace/name, have entries.
func hasEntries(s *spiretest.Server, accounts []string) bool {
	entries := s.Entries()
	return !slices.ContainsFunc(accounts, func(account string) bool {
		namespace, name, _ := strings.Cut(account, "/")
		_, ok := entries["/ns/"+namespace+"/sa/"+name]
		return !ok
	})
}

// compared waits until all entries were compared, and what follows from it is done.
func (d *duty) compared() {
	d.t.Helper()
	d.eventually("all entries are compared", func() bool {
		return testutil.ToFloat64(d.controller.Metrics.Compared) > 0 && d.metric(spire.StatePresent) > 0
	})
}

func (d *duty) metric(state string) float64 {
	return testutil.ToFloat64(d.controller.Metrics.Entries.WithLabelValues(state))
}
