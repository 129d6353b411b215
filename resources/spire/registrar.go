// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package spire

import (
	"cmp"
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/skep-operator/skep/resources/cluster"
	"github.com/skep-operator/skep/resources/k8s"
	"github.com/skep-operator/skep/resources/outside"
	"github.com/skep-operator/skep/resources/reconcile"
	"github.com/skep-operator/skep/resources/sweep"
	"github.com/skep-operator/skep/runtime/cell"
	"github.com/skep-operator/skep/runtime/health"
)

// Deps is the module of a registrar, and what the registrar needs of it.
type Deps struct {
	Connection *Connection
	Scope      outside.Scope
	Queue      reconcile.Deps
	Health     health.Reporter
	Log        *slog.Logger
	// MaxShare is the share of all entries that a comparison may delete, as in sweep.Config. 1 is no limit.
	MaxShare float64
	// Keep has a comparison delete nothing: entries that belong to nothing here may be another cluster's.
	Keep bool
	// Unnumbered says that the cluster has no ID, so that entries of others without one look like its own.
	Unnumbered bool

	api     *outside.APIMetrics // nil: not counted
	metrics *serverMetrics      // nil: not counted
}

type depsParams struct {
	cell.In

	Connection *Connection
	Scope      outside.Scope
	Queue      reconcile.Deps
	Health     health.Reporter
	Log        *slog.Logger
	Config     Config
	Cluster    cluster.Config
	Sweep      sweep.Config
	API        *outside.APIMetrics
	Metrics    *serverMetrics
}

func newDeps(_ cell.ModuleInfo, p depsParams) Deps {
	return Deps{p.Connection, p.Scope, p.Queue, p.Health, p.Log, p.Sweep.SweepMaxShare, !p.Config.MeshAuthSPIREPrune, p.Cluster.ClusterID == 0, p.API, p.Metrics}
}

// Registrar compares the entries of a kind at the server with those that a duty wants, one attempt at a time: all of them at
// the start, at an interval and after each failure, and in between those that are enqueued.
type Registrar[K cmp.Ordered] struct {
	// Interval is the time between comparisons of all entries, an hour. CountInterval is that between counts of them, 30 s, by which it is
	// noticed that the server has lost some. They are set before Run.
	Interval, CountInterval time.Duration

	deps    Deps
	server  *server[K]
	desired Desired[K]
	metrics EntryMetrics
	queue   *reconcile.Queue[string]

	mu  sync.Mutex
	due map[K]bool // enqueued since the last attempt

	// Of the queue's worker:
	at       entries[K] // at the server; nil: unknown
	readBy   generation // of the connection
	compared time.Time  // when all were
	number   census
	stale    []K // found by the last comparison, and not confirmed yet
	refused  map[K]refusal
	deleted  map[K]bool // in this term, and not created again since
	// contested is the path of an entry that came back after it was deleted, "" if none did.
	contested string
}

const (
	// key is the only key of the queue.
	key = "entries"
	// interval is the time between comparisons of all entries.
	interval = time.Hour
	// countInterval is the time between counts.
	countInterval = 30 * time.Second
	// maxChanges is the number of changes of an attempt, which health reports if it takes long.
	maxChanges = 2000
)

// NewRegistrar returns a registrar that does not run.
func NewRegistrar[K cmp.Ordered](d Deps, k Kind[K], desired Desired[K], m EntryMetrics) *Registrar[K] {
	r := &Registrar[K]{
		Interval: interval, CountInterval: countInterval, deps: d, server: newServer(d, k), desired: desired, metrics: m, due: map[K]bool{}, refused: map[K]refusal{}, deleted: map[K]bool{},
	}
	r.queue = reconcile.NewQueue(d.Queue, "register", r.register, reconcile.Workers(1), reconcile.Backoff(firstPause, longestPause), reconcile.HonorBackoff())
	return r
}

// Run registers until ctx ends. It is called when the state of everything is known, or unknown for good.
func (r *Registrar[K]) Run(ctx context.Context) error {
	r.queue.Add(key, r.deps.Queue.TermTrigger())
	return r.queue.Run(ctx)
}

// Enqueue has entries be compared whose state has changed. An entry that is unwanted then is deleted without confirmation.
func (r *Registrar[K]) Enqueue(trigger k8s.Trigger, keys ...K) {
	r.mu.Lock()
	for _, k := range keys {
		r.due[k] = true
	}
	r.mu.Unlock()
	r.queue.Add(key, trigger)
}

// register brings the entries to what they should be. A failed call makes them unknown, so that all are compared then: its
// changes may have been made. So does another connection: a server that returns may have lost some.
func (r *Registrar[K]) register(ctx context.Context, _ string) error {
	more, err := r.makeSome(ctx, r.now())
	r.server.close(err != nil)
	if err != nil {
		r.at = nil
		return err
	}
	r.report()
	if more {
		return reconcile.RequeueAfter(time.Millisecond)
	}
	r.desired.Converged(func(k K) bool { return len(r.at[k]) > 0 })
	return reconcile.RequeueAfter(r.wait())
}

// makeSome makes up to maxChanges changes, and reports whether there are more: stale entries are deleted last.
func (r *Registrar[K]) makeSome(ctx context.Context, now time.Time) (more bool, err error) {
	due := r.drain(now)
	if err := r.server.open(ctx); err != nil {
		return false, err
	}
	if r.server.link.generation() != r.readBy {
		r.at = nil
	}
	if err := r.recount(ctx, now); err != nil {
		return false, err
	}
	if r.at == nil || !now.Before(r.compared.Add(r.Interval)) {
		missing, err := r.compareAll(ctx, due)
		if err != nil {
			return false, err
		}
		due = slices.Concat(due, missing)
	}
	some, rest := compare(slices.Values(due), r.desired.State, r.at).split(maxChanges)
	if err := r.apply(ctx, some); err != nil {
		return false, err
	}
	maps.DeleteFunc(r.refused, func(_ K, f refusal) bool { return !now.Before(f.until) }) // there is nothing to do any more
	if len(rest) == 0 && len(r.stale) > 0 {
		if rest, err = r.confirm(ctx, r.stale); err != nil {
			return false, err
		}
		r.stale = nil
	}
	if r.server.link.generation() != r.readBy { // gRPC has repeated a call by another connection
		r.at = nil
		return true, nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, k := range rest {
		r.due[k] = true
	}
	return len(rest) > 0, nil
}

func (r *Registrar[K]) now() time.Time { return r.deps.Queue.Plan.Now() }

// drain returns what was enqueued, and what was refused and is to be tried again.
func (r *Registrar[K]) drain(now time.Time) []K {
	r.mu.Lock()
	defer r.mu.Unlock()
	due := r.due
	r.due = map[K]bool{}
	for k, f := range r.refused {
		if !now.Before(f.until) {
			due[k] = true
		}
	}
	return slices.Collect(maps.Keys(due))
}

// wait is the time to the next attempt if nothing is enqueued before.
func (r *Registrar[K]) wait() time.Duration {
	next := r.compared.Add(r.Interval)
	if count := r.number.counted.Add(r.CountInterval); r.number.isKnown && count.Before(next) {
		next = count
	}
	for _, f := range r.refused {
		if f.until.Before(next) {
			next = f.until
		}
	}
	return max(next.Sub(r.now()), time.Millisecond)
}
