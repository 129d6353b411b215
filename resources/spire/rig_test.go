// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package spire

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/skep-operator/skep/resources/k8s"
	"github.com/skep-operator/skep/resources/operatortest"
	"github.com/skep-operator/skep/resources/reconcile"
	"github.com/skep-operator/skep/resources/spire/spiretest"
	"github.com/skep-operator/skep/runtime/health"
	"github.com/skep-operator/skep/runtime/logging/logtest"
)

// rig is a registrar of paths that begin with /a/, with a connection of its own.
type rig struct {
	*Registrar[string]
	t          testing.TB
	spire      *spiretest.Server
	connection *Connection
	tree       *health.Tree
	log        *logtest.Buffer
	paths      *paths
}

// newRig returns a rig that does not run.
func newRig(t testing.TB, s *spiretest.Server, wanted ...string) *rig {
	t.Helper()
	r := &rig{t: t, spire: s, connection: connect(t, s), tree: health.NewTree(), log: &logtest.Buffer{}}
	r.Registrar, r.paths = newPaths(r.connection, r.tree, "first", kindOf("/first", "/a/"), wanted...)
	r.deps.Log = slog.New(slog.NewTextHandler(r.log, nil))
	return r
}

// pauseAfterFailures has a failed attempt be repeated after a pause, unless something ends it.
func (r *rig) pauseAfterFailures(pause time.Duration) {
	r.queue = reconcile.NewQueue(r.deps.Queue, "register", r.register, reconcile.Workers(1), reconcile.Backoff(pause, pause), reconcile.HonorBackoff())
}

// start runs the registrar until the test ends, or the function is called.
func (r *rig) start() (end func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { _ = r.Run(ctx) })
	end = sync.OnceFunc(func() { cancel(); running.Wait() })
	r.t.Cleanup(end)
	return end
}

// want has paths be wanted, and waits until they have entries.
func (r *rig) want(all ...string) {
	r.t.Helper()
	for _, path := range all {
		r.paths.set(path, true)
	}
	r.Enqueue(k8s.Trigger{}, all...)
	r.eventually("there are entries of "+strings.Join(all, " "), func() bool { return r.has(all...) })
}

func (r *rig) has(all ...string) bool {
	entries := r.spire.Entries()
	return !slices.ContainsFunc(all, func(path string) bool { _, exists := entries[path]; return !exists })
}

// degraded is what is degraded now.
func (r *rig) degraded() string {
	var all []string
	for _, s := range r.tree.Degraded() {
		all = append(all, s.ID+": "+s.Message+": "+s.Error)
	}
	return strings.Join(all, "\n")
}

func (r *rig) eventually(what string, holds func() bool) {
	r.t.Helper()
	defer func() {
		if r.t.Failed() {
			r.t.Logf("calls: %v\ndegraded: %s\nlog: %s", r.spire.Calls(), r.degraded(), r.log)
		}
	}()
	operatortest.Eventually(r.t, what, holds)
}

func (r *rig) metric(state string) float64 {
	return testutil.ToFloat64(r.metrics.Entries.WithLabelValues(state))
}

// entryOf is the entry of a path as the registrar creates it.
func entryOf(path string) spiretest.Entry {
	const domain = "spiffe.cilium"
	return spiretest.Entry{
		SPIFFEID: spiretest.ID{TrustDomain: domain, Path: path}, ParentID: spiretest.ID{TrustDomain: domain, Path: "/first"},
		Selectors: []spiretest.Selector{{Type: "k8s", Value: "ns:/a/"}},
	}
}
