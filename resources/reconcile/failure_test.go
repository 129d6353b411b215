// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package reconcile

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/skep-operator/skep/resources/k8s"
)

func tooMany(seconds int) error {
	return apierrors.NewGenericServerResponse(http.StatusTooManyRequests, "put", schema.GroupResource{}, "", "slow down", seconds, true)
}

// A pause that the API server asks for is the queue's: the worker is free, no event cuts
// it short, and health says until when.
func TestRetryAfterIsKeptByTheQueue(t *testing.T) {
	for name, test := range map[string]struct {
		asked int
		pause time.Duration
		text  string
	}{
		"seconds":        {30, 30 * time.Second, "asks for a pause of 30s"},
		"an hour":        {3600, 5 * time.Minute, "asks for a pause of 1h0m0s, which is cut to 5m0s"},
		"less than ours": {1, 10 * time.Second, "asks for a pause of 1s"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				seen := newLooks()
				r := newRig()
				l := NewQueue(r.scope, "write", func(_ context.Context, key string) error {
					if n := seen.note(key); n == 1 && key != "other" {
						return fmt.Errorf("writing: %w", tooMany(test.asked))
					}
					return nil
				}, Workers(1), Backoff(10*time.Second, time.Minute))
				r.run(t, l.Run)
				l.Add("a")
				l.Add("b")
				time.Sleep(time.Second)
				l.Add("a") // an event
				l.Add("other")
				synctest.Wait()
				got := strings.Join(r.degraded(), "\n")
				for _, want := range []string{"2 failing", "2 wait until ", test.text} {
					if !strings.Contains(got, want) {
						t.Errorf("health says %q, and not %q", got, want)
					}
				}
				time.Sleep(time.Hour)
				r.stop()
				want := map[string][]time.Duration{"a": {0, test.pause}, "b": {0, test.pause}, "other": {time.Second}}
				if diff := cmp.Diff(want, seen.at); diff != "" {
					t.Error(diff)
				}
				if got := r.degraded(); len(got) > 0 {
					t.Errorf("afterwards: %v", got)
				}
				if n := strings.Count(r.log.String(), "level=WARN"); n != 1 {
					t.Errorf("%d warnings, want one for all keys:\n%s", n, r.log)
				}
			})
		})
	}
}

// A key waits out its pause also where an earlier retry is still scheduled.
func TestAnEarlierRetryDoesNotCutAPauseShort(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		seen := newLooks()
		r := newRig()
		l := NewQueue(r.scope, "write", func(_ context.Context, key string) error {
			switch seen.note(key) {
			case 1:
				return errors.New("no")
			case 2:
				return tooMany(60)
			}
			return nil
		}, Backoff(10*time.Second, time.Minute))
		r.run(t, l.Run)
		l.Add("a")
		time.Sleep(time.Second)
		l.Add("a") // which hurries it: its retry is scheduled for 10 s
		time.Sleep(time.Hour)
		r.stop()
		s := time.Second
		if diff := cmp.Diff([]time.Duration{0, s, 61 * s}, seen.at["a"]); diff != "" {
			t.Error(diff)
		}
	})
}

// Keys that lack a permission wait for it, all of them, and go on together.
func TestKeysWaitForAPermission(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		granted := make(chan struct{})
		var mu sync.Mutex
		allowed := false
		seen := newLooks()
		r := newRig()
		l := NewQueue(r.scope, "write", func(_ context.Context, key string) error {
			seen.note(key)
			mu.Lock()
			defer mu.Unlock()
			if allowed {
				return nil
			}
			return fmt.Errorf("writing: %w", &k8s.PermissionError{Permission: "create x", Granted: granted, Err: errors.New("no")})
		})
		r.run(t, l.Run)
		for i := range 20 {
			l.Add(fmt.Sprint(i))
		}
		for range 100 {
			time.Sleep(time.Second)
			l.Add("0")
		}
		if got := r.degraded(); len(got) != 1 || !strings.Contains(got[0], "20 failing") {
			t.Errorf("degraded: %v", got)
		}
		mu.Lock()
		allowed = true
		mu.Unlock()
		close(granted)
		synctest.Wait()
		if got := r.degraded(); len(got) > 0 {
			t.Errorf("afterwards: %v", got)
		}
		r.stop()
		for key, at := range seen.at {
			if diff := cmp.Diff([]time.Duration{0, 100 * time.Second}, at); diff != "" {
				t.Errorf("%s: %s", key, diff)
			}
		}
		if strings.Contains(r.log.String(), "level=WARN") {
			t.Errorf("it is the permissions' to warn:\n%s", r.log)
		}
	})
}

// awaited is the error of an attempt that is worth another one when a channel is closed.
type awaited struct{ over chan struct{} }

func (awaited) Error() string { return "not yet" }

func (a awaited) Awaited() <-chan struct{} { return a.over }

// What an attempt waits for ends its back-off, which changes of the key do not.
func TestWhatIsAwaitedEndsABackOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		over := make(chan struct{})
		seen := newLooks()
		r := newRig()
		l := NewQueue(r.scope, "connect", func(_ context.Context, key string) error {
			if seen.note(key) == 1 {
				return fmt.Errorf("connecting: %w", awaited{over})
			}
			return nil
		}, Backoff(time.Hour, time.Hour), HonorBackoff())
		r.run(t, l.Run)
		l.Add("k")
		time.Sleep(time.Second)
		l.Add("k")
		time.Sleep(time.Minute)
		close(over)
		synctest.Wait()
		if got := r.degraded(); len(got) > 0 {
			t.Errorf("afterwards: %v", got)
		}
		r.stop()
		if diff := cmp.Diff([]time.Duration{0, 61 * time.Second}, seen.at["k"]); diff != "" {
			t.Error(diff)
		}
	})
}

// A change that others undo is not tried before its time, whatever happens to the key.
func TestContentionIsWaitedOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		until := time.Now().Add(40 * time.Second)
		seen := newLooks()
		r := newRig()
		l := NewQueue(r.scope, "write", func(_ context.Context, key string) error {
			seen.note(key)
			if time.Now().Before(until) {
				return &k8s.ContentionError{Field: "status.error", Times: 7, Until: until}
			}
			return nil
		})
		r.run(t, l.Run)
		l.Add("a")
		for range 100 {
			time.Sleep(100 * time.Millisecond)
			l.Add("a")
		}
		if got := r.degraded(); len(got) != 1 {
			t.Errorf("degraded: %v", got)
		}
		time.Sleep(time.Hour)
		r.stop()
		if diff := cmp.Diff([]time.Duration{0, 40 * time.Second}, seen.at["a"]); diff != "" {
			t.Error(diff)
		}
	})
}

// What is not stored as it was sent is tried again after growing pauses, and the events
// of the attempts themselves do not hurry it. Many keys of one cause are one warning.
func TestResponsesThatAreNotBelievedAreTriedAgainWithBackOff(t *testing.T) {
	for name, err := range map[string]error{
		"not stored": &k8s.NotStoredError{Field: "spec.a"},
		"no answer":  &k8s.InvalidResponseError{What: "a page"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				seen := newLooks()
				r := newRig()
				var l *Queue[string]
				l = NewQueue(r.scope, "write", func(_ context.Context, key string) error {
					if seen.note(key) > 4 {
						return nil
					}
					l.Add(key) // the event of the write
					return err
				}, Backoff(time.Second, time.Minute))
				r.run(t, l.Run)
				l.Add("a")
				l.Add("b")
				time.Sleep(time.Hour)
				r.stop()
				s := time.Second
				want := []time.Duration{0, s, 3 * s, 7 * s, 15 * s}
				if diff := cmp.Diff(map[string][]time.Duration{"a": want, "b": want}, seen.at); diff != "" {
					t.Error(diff)
				}
				if n := strings.Count(r.log.String(), "level=WARN"); n != 1 {
					t.Errorf("%d warnings, want one:\n%s", n, r.log)
				}
			})
		})
	}
}

// An attempt that is held, by whatever, shows in health.
func TestAnAttemptThatTakesLongShows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		r := newRig()
		l := NewQueue(r.scope, "write", func(context.Context, string) error { <-release; return nil })
		r.run(t, l.Run)
		l.Add("a")
		time.Sleep(6 * time.Second)
		if got := r.degraded(); len(got) != 1 || !strings.Contains(got[0], "for a since") {
			t.Errorf("degraded: %v", got)
		}
		close(release)
		synctest.Wait()
		if got := r.degraded(); len(got) > 0 {
			t.Errorf("afterwards: %v", got)
		}
		r.stop()
	})
}
