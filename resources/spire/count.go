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
	n       int  // what it is to count by now
	counted time.Time
}

// begin learns what the server counts right after it has listed all. One that counts something else, such as all entries whatever the
// filter is, is not asked again before the next comparison.
func (r *Registrar[K]) begin(ctx context.Context, listed int) error {
	n, known, err := r.server.count(ctx)
	r.number = census{isKnown: known && n == listed, n: n, counted: r.now()}
	return err
}

// recount has all entries be compared if the server counts another number than it should.
func (r *Registrar[K]) recount(ctx context.Context, now time.Time) error {
	if r.at == nil || !r.number.isKnown || now.Before(r.number.counted.Add(r.CountInterval)) {
		return nil
	}
	n, known, err := r.server.count(ctx)
	if err != nil {
		return err
	}
	if r.number.counted = now; known && n != r.number.n {
		r.deps.Log.Warn("the SPIRE server has another number of entries than it should, comparing them all", "entries", n, "expected", r.number.n)
		r.at = nil
	}
	return nil
}
