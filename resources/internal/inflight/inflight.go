// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

// Package inflight reports attempts that take long while they are in progress: an
// unanswered request, a wait for a rate limit. They have not failed, so no error shows
// them.
package inflight

import (
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/skep-operator/skep/runtime/health"
)

const (
	// limit is the duration after which an attempt is reported.
	limit = 5 * time.Second
	// logAfter is the duration after which one is logged, once.
	logAfter = time.Minute
)

// Tracker follows the attempts of one loop. It is safe for concurrent use.
type Tracker struct {
	health health.Reporter
	log    *slog.Logger
	rule   string

	mu       sync.Mutex
	attempts map[*attempt]struct{}
	timer    *time.Timer // runs while there are attempts
	reported bool
}

type attempt struct {
	key    any
	since  time.Time
	logged bool
}

// New returns a tracker for a rule that reports to a part of health of its own.
func New(h health.Reporter, log *slog.Logger, rule string) *Tracker {
	return &Tracker{health: h.Child("attempts"), log: log, rule: rule, attempts: map[*attempt]struct{}{}}
}

// Begin records the start of an attempt for a key; end records its end.
func (t *Tracker) Begin(key any) (end func()) {
	a := &attempt{key: key, since: time.Now()}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.attempts[a] = struct{}{}
	if t.timer == nil {
		t.timer = time.AfterFunc(limit, t.inspect)
	}
	return func() { t.end(a) }
}

func (t *Tracker) end(a *attempt) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.attempts, a)
	if t.reported {
		t.report()
	}
}

// inspect reports attempts that take long.
func (t *Tracker) inspect() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.attempts) == 0 {
		t.timer = nil
		return
	}
	t.timer.Reset(t.report())
}

// Oldest is the key of the oldest attempt, nil for none.
func (t *Tracker) Oldest() (key any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	var since time.Time
	for a := range t.attempts {
		if key == nil || a.since.Before(since) {
			key, since = a.key, a.since
		}
	}
	return key
}

// report reports the oldest attempt if it takes long, and returns the delay until the
// next inspection.
func (t *Tracker) report() time.Duration {
	var oldest *attempt
	late := 0
	for a := range t.attempts {
		if time.Since(a.since) >= limit {
			late++
		}
		if !a.logged && time.Since(a.since) >= logAfter {
			a.logged = true
			t.log.Warn("attempt takes long", "rule", t.rule, "key", fmt.Sprint(a.key), "since", a.since.UTC().Format(time.RFC3339))
		}
		if oldest == nil || a.since.Before(oldest.since) {
			oldest = a
		}
	}
	if late == 0 {
		if t.reported {
			t.reported = false
			t.health.Remove()
		}
		if oldest == nil {
			return limit
		}
		return limit - time.Since(oldest.since)
	}
	t.reported = true
	t.health.Degraded(fmt.Sprintf("%d attempts take long, the oldest for %v since %s", late, oldest.key,
		oldest.since.UTC().Format(time.RFC3339)), nil)
	return limit
}
