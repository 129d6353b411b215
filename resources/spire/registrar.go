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

	mu    sync.Mutex
	due   map[K]uint64 // enqueued since the last attempt, or left by one, by the attempt after which they became due
	round uint64       // the number of the last attempt

	// Of the queue's worker:
	at         entries[K] // at the server; nil: unknown
	unanswered bool       // a call has not been answered, and all are compared when nothing else is due
	compared   time.Time  // when all were
	number     census
	since      map[K]uint64 // what was due at the beginning of the attempt
	turns      *turns[K]
	stale      []K        // found by the last comparison, and not confirmed yet
	waited     int        // attempts that had other things to do since
	foreign    map[K]bool // entries that belong to nothing known here, and stay
	refused    map[K]refusal
	late       map[K]int  // how many entries the next call may have, as the last one was not answered
	deleted    map[K]bool // in this term, and not created again since
	// countedBy is the connection by which the entries were last listed or counted.
	countedBy generation
	// contested is the path of an entry that came back after it was deleted, "" if none did.
	contested string
	// held says that stale entries are kept, since they are too many.
	held bool
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
	// confirmAfter is how many attempts have stale entries wait that leave other changes to the next one. There can be other changes all the time.
	confirmAfter = 3
	// confirmLimit is how long other changes wait for stale entries to be confirmed.
	confirmLimit = 2 * time.Second
)

// NewRegistrar returns a registrar that does not run.
func NewRegistrar[K cmp.Ordered](d Deps, k Kind[K], desired Desired[K], m EntryMetrics) *Registrar[K] {
	r := &Registrar[K]{
		Interval: interval, CountInterval: countInterval, deps: d, server: newServer(d, k), desired: desired, metrics: m, due: map[K]uint64{},
		foreign: map[K]bool{}, refused: map[K]refusal{}, late: map[K]int{}, deleted: map[K]bool{}, turns: newTurns(k.Lane),
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
		if _, is := r.due[k]; !is {
			r.due[k] = r.round
		}
	}
	r.mu.Unlock()
	r.queue.Add(key, trigger)
}

// register brings the entries to what they should be. A failed call makes them unknown, so that all are compared then: its changes may have been
// made. Where one was only not answered in time, that can wait until the rest is done. Another connection has them counted: a server that returns may have
// lost some.
func (r *Registrar[K]) register(ctx context.Context, _ string) error {
	arrived := r.deps.Connection.workload.arrival()
	more, err := r.attempt(ctx, r.now())
	r.server.close(err != nil)
	if err != nil && !timedOut(err) {
		r.at = nil
	}
	if r.at != nil {
		r.report()
	}
	switch {
	case err != nil:
		return &arrivalError{err, arrived}
	case more:
		return reconcile.RequeueAfter(time.Millisecond)
	}
	r.desired.Converged(func(k K) bool { return len(r.at[k]) > 0 })
	return reconcile.RequeueAfter(r.wait())
}

// attempt makes some changes, and reports whether there is more to be done.
func (r *Registrar[K]) attempt(ctx context.Context, now time.Time) (more bool, err error) {
	left, err := r.makeSome(ctx, r.drain(now), now)
	if err == nil || timedOut(err) {
		r.postpone(left)
	}
	switch {
	case err != nil || len(left) > 0:
		return true, err
	case r.unanswered:
		r.at = nil
		return true, nil
	}
	return r.server.link.generation() != r.countedBy, nil
}

// makeSome makes some changes of what is due, and returns what is left: stale entries are deleted last, or when they have waited for a few attempts.
func (r *Registrar[K]) makeSome(ctx context.Context, due []K, now time.Time) (left []K, err error) {
	missing, err := r.readServer(ctx, due, now)
	if err != nil {
		return due, err
	}
	due = r.retriable(slices.Concat(due, missing), now)
	left, err = r.apply(ctx, r.turns.arrange(compare(slices.Values(due), r.desired.State, r.at), r.dueSince, func(k K) bool { return r.most(k) > 0 }))
	r.forgetDone(due)
	if err != nil || len(r.stale) == 0 {
		return left, err
	}
	if r.waited++; len(left) > 0 && r.waited <= confirmAfter {
		return left, nil
	}
	confirmed, err := r.confirmBeside(ctx, left)
	r.waited = 0
	if err == nil {
		r.stale = nil
	} else if len(left) > 0 && ctx.Err() == nil {
		return left, nil // which does not wait for it
	}
	return append(left, confirmed...), err
}

// confirmBeside confirms stale entries. Where other changes are left that takes two seconds at most: it waits for the API server of Kubernetes, which they do not.
func (r *Registrar[K]) confirmBeside(ctx context.Context, left []K) ([]K, error) {
	if len(left) > 0 {
		limited, cancel := context.WithTimeout(ctx, confirmLimit)
		defer cancel()
		ctx = limited
	}
	return r.confirm(ctx, r.stale, left)
}

// dueSince is the attempt after which a key became due.
func (r *Registrar[K]) dueSince(k K) uint64 {
	if since, is := r.since[k]; is {
		return since
	}
	return r.round
}

// readServer learns what the server has, if that is not known, and returns what lacks an entry then.
func (r *Registrar[K]) readServer(ctx context.Context, due []K, now time.Time) (missing []K, err error) {
	if err := r.server.open(ctx); err != nil {
		return nil, err
	}
	if err := r.recount(ctx, now); err != nil {
		return nil, err
	}
	if r.at != nil && now.Before(r.compared.Add(r.Interval)) {
		return nil, nil
	}
	return r.compareAll(ctx, due)
}

// postpone has what is left be due in the next attempt.
func (r *Registrar[K]) postpone(left []K) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, k := range left {
		since := r.dueSince(k)
		if now, is := r.due[k]; is {
			since = min(since, now)
		}
		r.due[k] = since
	}
}

// retriable returns what is due but for what the server has refused, before its pause is over.
func (r *Registrar[K]) retriable(due []K, now time.Time) []K {
	return slices.DeleteFunc(due, func(k K) bool { return now.Before(r.refused[k].until) })
}

func (r *Registrar[K]) now() time.Time { return r.deps.Queue.Plan.Now() }

// drain returns what was enqueued, and what was refused and is to be tried again.
func (r *Registrar[K]) drain(now time.Time) []K {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.since, r.due = r.due, map[K]uint64{}
	r.round++
	for k, f := range r.refused {
		if _, is := r.since[k]; !is && !now.Before(f.until) {
			r.since[k] = r.round
		}
	}
	return slices.Collect(maps.Keys(r.since))
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
