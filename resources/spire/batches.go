// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package spire

import (
	"cmp"
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/skep-operator/skep/resources/explain"
	"github.com/skep-operator/skep/resources/k8s"
	"github.com/skep-operator/skep/resources/spire/internal/entryapi"
)

// batch is what one call changes, and what became of it.
type batch[K cmp.Ordered] struct {
	changes[K]
	results []entryapi.Result // none after an error
	err     error
}

// apply makes changes, up to maxChanges, and returns what is left of them: what no call was made for, and what one has left in doubt. Entries that the server refuses are
// tried again later, and keep no others from being changed.
func (r *Registrar[K]) apply(ctx context.Context, w *work[K]) (left []K, err error) {
	if w.none() {
		return nil, nil
	}
	made, err := r.makeCalls(ctx, w)
	left = w.keys()
	created, deleted := 0, 0
	for _, b := range made {
		if b.err != nil {
			left = append(left, r.recordUnanswered(b)...)
			continue
		}
		r.record(b)
		created, deleted = created+len(b.create), deleted+len(b.remove)
	}
	explain.SetReason(ctx, fmt.Sprintf("%d entries created, %d deleted, %d refused", created, deleted, len(r.refused)))
	return left, err
}

// makeCalls makes changes as fast as the server answers, and returns the calls. What there was none for is left: after a failure, after maxChanges, and after a
// while, no further one begins. One that times out ends no other. Another failure does, since what the server has is not known then.
func (r *Registrar[K]) makeCalls(ctx context.Context, w *work[K]) (made []*batch[K], err error) {
	pacer := r.server.connection.pacer
	calls, limited := errgroup.WithContext(ctx)
	var late atomic.Pointer[error]
	until := time.Now().Add(pacer.patience.attempt)
	for n := 0; !w.none() && n < maxChanges; {
		t, ended := pacer.begin(limited)
		if ended != nil {
			calls.Go(func() error { return ended }) // of ctx, if no call has failed before
			break
		}
		if late.Load() != nil || len(made) > 0 && time.Now().After(until) {
			pacer.end(t, 0, context.Canceled)
			break
		}
		b := &batch[K]{changes: w.next(min(t.entries, maxChanges-n), r.most)}
		made, n = append(made, b), n+b.len()
		calls.Go(func() error {
			b.results, b.err = r.makeCall(limited, b.changes)
			pacer.end(t, b.len(), b.err)
			if timedOut(b.err) {
				late.Store(&b.err)
				return nil
			}
			return b.err
		})
	}
	if err := calls.Wait(); err != nil {
		return made, err
	}
	if err := late.Load(); err != nil {
		return made, *err
	}
	return made, nil
}

// makeCall makes the changes of a batch.
func (r *Registrar[K]) makeCall(ctx context.Context, ch changes[K]) ([]entryapi.Result, error) {
	ctx = r.withTriggers(ctx, ch.keys())
	if len(ch.create) > 0 {
		return r.server.create(ctx, ch.create)
	}
	return r.server.remove(ctx, ch.remove)
}

// withTriggers makes what the entries of a batch are for the triggers of its call.
func (r *Registrar[K]) withTriggers(ctx context.Context, keys []K) context.Context {
	triggers := make([]k8s.Trigger, len(keys))
	for i, k := range keys {
		triggers[i] = r.server.kind.Trigger(k)
	}
	return k8s.WithCause(ctx, &k8s.Cause{Rule: explain.CauseOf(ctx).Rule, Triggers: triggers})
}

// record records what became of the changes of a batch.
func (r *Registrar[K]) record(b *batch[K]) {
	for _, k := range b.keys() {
		delete(r.late, k)
	}
	for i, k := range b.create {
		r.metrics.count(methodUpsert, r.recordCreated(k, b.results[i]))
	}
	for i, removal := range b.remove {
		r.metrics.count(methodDelete, r.recordRemoved(removal, b.results[i]))
	}
}

// most is how many entries a call may have that changes the entry of a key, 0 for any number.
func (r *Registrar[K]) most(k K) int {
	if r.refused[k].alone {
		return 1
	}
	return r.late[k]
}

// recordUnanswered returns what is to be changed again of a batch without an answer. It may have been changed, so that all are compared in the end.
// If one of its entries is to blame, it is found by halves, after all others. One for which alone a call does not end is as one that is refused.
func (r *Registrar[K]) recordUnanswered(b *batch[K]) []K {
	r.unanswered = true
	for _, k := range b.create {
		delete(r.deleted, k) // if it is there, it is our own
		r.metrics.count(methodUpsert, false)
	}
	for range b.remove {
		r.metrics.count(methodDelete, false)
	}
	keys := b.keys()
	switch {
	case !timedOut(b.err):
		return keys
	case len(keys) == 1:
		r.refuse(keys[0], b.err)
		f := r.refused[keys[0]]
		f.alone = true
		r.refused[keys[0]] = f
		return nil
	}
	for _, k := range keys {
		r.late[k] = len(keys) / 2
	}
	return keys
}
