// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package reconcile

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/skep-operator/skep/resources/k8s"
	"github.com/skep-operator/skep/resources/leading"
	"github.com/skep-operator/skep/resources/panics"
)

// failure is the last failure of a key.
type failure struct {
	k8s.Hold
	err error
	// until is the time before which Add causes no attempt, zero if it does.
	until time.Time
}

// failures are the keys whose last attempt failed.
type failures[K comparable] struct {
	keys     map[K]failure
	count    map[k8s.HoldCause]int
	panicked map[K]struct{} // those of keys whose attempt panicked
	// holdEnd is the last time until which the API server has throttled keys.
	holdEnd time.Time
}

func newFailures[K comparable]() failures[K] {
	return failures[K]{keys: map[K]failure{}, count: map[k8s.HoldCause]int{}, panicked: map[K]struct{}{}}
}

func (f *failures[K]) set(key K, is failure) {
	f.remove(key)
	f.keys[key] = is
	f.count[is.Cause]++
	if errors.As(is.err, new(*panics.Error)) {
		f.panicked[key] = struct{}{}
	}
	if is.Cause == k8s.Throttled && is.until.After(f.holdEnd) {
		f.holdEnd = is.until
	}
}

func (f *failures[K]) remove(key K) (failed bool) {
	was, failed := f.keys[key]
	if failed {
		delete(f.keys, key)
		delete(f.panicked, key)
		f.count[was.Cause]--
	}
	return failed
}

// isNews reports whether a failure is logged as a warning: the first of a key, or, for a cause that keys have in common,
// the first of all keys.
func (f *failures[K]) isNews(key K, cause k8s.HoldCause) bool {
	switch cause {
	case k8s.NoHold:
		was, known := f.keys[key]
		return !known || was.Cause != cause
	case k8s.NotPermitted, k8s.Contended: // the client logs it once for all queues
		return false
	}
	return f.count[cause] == 0
}

// remaining is the time for which Add causes no attempt of a key.
func (f *failures[K]) remaining(key K, now time.Time) time.Duration {
	return max(0, f.keys[key].until.Sub(now))
}

// summary is one line for health, after the failure of a key.
func (f *failures[K]) summary(key K) string {
	text := fmt.Sprintf("%d failing, %v among them", len(f.keys), key)
	for other := range f.panicked { // an error of another key does not hide it
		if other != key {
			text += fmt.Sprintf("; %v", f.keys[other].err)
			break
		}
	}
	if n := f.count[k8s.Throttled]; n > 0 {
		text += fmt.Sprintf("; %d wait until %s", n, f.holdEnd.UTC().Format(time.RFC3339))
		if detail := f.keys[key].Detail; detail != "" {
			text += ", " + detail
		}
	}
	return text
}

// recordFailure records the failure of a key, and returns the pause before its next attempt. Health shows how many keys
// fail; the log has the first failure of a key, and of a cause that keys have in common.
func (q *Queue[K]) recordFailure(key K, err error, backOff time.Duration) time.Duration {
	now := q.options.plan.Now()
	is := failure{Hold: k8s.HoldOf(err, backOff, now), err: err}
	panicked := new(panics.Error)
	isPanic := errors.As(err, &panicked)
	if isPanic {
		is.Hold = k8s.Hold{Pause: panicked.Pause}
	}
	if isPanic || is.Cause != k8s.NoHold {
		is.until = now.Add(is.Pause)
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	first := !isPanic && q.failing.isNews(key, is.Cause) // the rule has logged a panic
	q.failing.set(key, is)
	if is.Granted != nil {
		q.awaitGrant(is.Granted)
	}
	q.options.health.Degraded(q.failing.summary(key), err)
	level := slog.LevelDebug
	if first && !errors.Is(err, leading.ErrFenced) {
		level = slog.LevelWarn
	}
	q.options.log.Log(context.Background(), level, "reconcile failed, retrying", "rule", q.rule, "key", fmt.Sprint(key), "error", err)
	return is.Pause
}

// setAside is how long a key has to wait whose handling panicked before the module was built anew. The caller has the lock.
func (q *Queue[K]) setAside(key K) time.Duration {
	if _, known := q.failing.keys[key]; known {
		return 0
	}
	e, rest := q.panics.Waits(key)
	if e != nil {
		q.failing.set(key, failure{err: e, until: time.Now().Add(rest)})
		q.options.health.Degraded(q.failing.summary(key), e)
	}
	return rest
}

// awaitGrant requeues the keys that wait for a permission when it is granted. The caller has the lock.
func (q *Queue[K]) awaitGrant(granted <-chan struct{}) {
	if q.ctx == nil || q.awaited[granted] {
		return
	}
	q.awaited[granted] = true
	q.watchers.Go(func() {
		select {
		case <-granted:
			q.requeueGranted(granted)
		case <-q.ctx.Done():
		}
	})
}

func (q *Queue[K]) requeueGranted(granted <-chan struct{}) {
	q.mu.Lock()
	defer q.mu.Unlock()
	delete(q.awaited, granted)
	for key, f := range q.failing.keys {
		if f.Granted == granted {
			f.until = time.Time{}
			q.failing.keys[key] = f
			q.queue.Add(key)
		}
	}
}
