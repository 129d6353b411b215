// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package spire

import (
	"context"
	"time"
)

// census is how many entries the server counts, by which it is noticed that it has lost or got some (SPIRE-12).
type census struct {
	isKnown bool // the server counts what it lists
	n       int  // what it is to count by now, or up to unsure more
	unsure  int  // entries that existed already, and were counted or not
	counted time.Time
}

func (c census) expects(n int) bool { return c.n <= n && n <= c.n+c.unsure }

// begin learns what the server counts right after it has listed all. One that counts something else, such as all entries whatever the
// filter is, is not asked again before the next comparison; one that does not answer in time is.
func (r *Registrar[K]) begin(ctx context.Context, listed int) error {
	n, known, err := r.server.count(ctx)
	if timedOut(err) {
		n, known, err = listed, true, nil
	}
	r.number = census{isKnown: known && n == listed, n: n, counted: r.now()}
	return err
}

// recount has all entries be compared if the server counts another number than it should: at an interval, and by each new connection, behind which may be
// another server. That a connection has ended is no reason by itself, as servers end each after a while; only one that does not count has all be compared then.
func (r *Registrar[K]) recount(ctx context.Context, now time.Time) error {
	isNew := r.server.link.generation() != r.countedBy
	switch {
	case r.at == nil || r.unanswered: // they are compared anyway
		return nil
	case !r.number.isKnown:
		if isNew {
			r.at = nil
		}
		return nil
	case !isNew && now.Before(r.number.counted.Add(r.CountInterval)):
		return nil
	}
	n, known, err := r.server.count(ctx)
	if err != nil && !timedOut(err) {
		return err
	}
	r.number.counted, r.countedBy = now, r.server.link.generation()
	switch {
	case !known:
	case r.number.expects(n):
		r.number.n, r.number.unsure = n, 0
	default:
		r.deps.Log.Warn("the SPIRE server has another number of entries than it should, comparing them all", "entries", n, "expected", r.number.n)
		r.at = nil
	}
	return nil
}
