// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package reconcile

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/skep-operator/skep/resources/stream/slim"
)

func TestUrgentKeysGoFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig()
		var order []string
		var q *Queue[string]
		q = NewQueue(r.scope, "look", func(_ context.Context, key string) error {
			if order = append(order, key); key == "a" {
				q.Add("urgent 2")
				q.Add("c")
				q.Add("urgent 2") // which waits already
			}
			return nil
		}, Workers(1), Urgent(func(key string) bool { return strings.HasPrefix(key, "urgent") }))
		for _, key := range []string{"a", "b", "urgent 1"} {
			q.Add(key)
		}
		r.run(t, q.Run)
		synctest.Wait()
		r.stop()
		if want := []string{"urgent 1", "a", "urgent 2", "b", "c"}; !slices.Equal(order, want) {
			t.Errorf("%q, want %q", order, want)
		}
	})
}

// K8S-22: urgent keys that come without end leave each fourth turn to the others, and one of these to each namespace in turn.
func TestUrgentKeysLeaveTurnsToOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig()
		var order []string
		next := 5
		var q *Queue[slim.Key]
		q = NewQueue(r.scope, "check", func(_ context.Context, key slim.Key) error {
			order = append(order, key.String())
			if key.Namespace == "bb" && next < 40 {
				q.Add(slim.Key{Namespace: "bb", Name: fmt.Sprint("urgent", next)})
				next++
			}
			return nil
		}, Workers(1), Urgent(func(key slim.Key) bool { return strings.HasPrefix(key.Name, "urgent") }))
		for i := range 5 {
			q.Add(slim.Key{Namespace: "bb", Name: fmt.Sprint("urgent", i)})
		}
		for _, key := range []slim.Key{{Namespace: "cc", Name: "1"}, {Namespace: "cc", Name: "2"}, {Namespace: "aa", Name: "1"}} {
			q.Add(key)
		}
		r.run(t, q.Run)
		synctest.Wait()
		r.stop()
		for at, want := range map[int]string{3: "cc/1", 7: "aa/1", 11: "cc/2", 12: "bb/urgent9", 15: "bb/urgent12"} {
			if len(order) <= at || order[at] != want {
				t.Errorf("place %d is not that of %s: %q", at, want, order)
			}
		}
	})
}

// K8S-22: a turn that no other key may have goes to an urgent one.
func TestTurnsThatNoOtherMayHave(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig()
		done := map[string]time.Duration{}
		began := time.Now()
		var mu sync.Mutex
		q := NewQueue(r.scope, "check", func(_ context.Context, key slim.Key) error {
			if key.Namespace == "bb" {
				time.Sleep(time.Hour)
			}
			mu.Lock()
			defer mu.Unlock()
			done[key.String()] = time.Since(began)
			return nil
		}, Workers(2), Urgent(func(key slim.Key) bool { return strings.HasPrefix(key.Name, "urgent") }))
		q.Add(slim.Key{Namespace: "bb", Name: "1"})
		r.run(t, q.Run)
		synctest.Wait()
		q.Add(slim.Key{Namespace: "bb", Name: "2"}) // it may not go: bb has all workers but one
		for i := range 10 {
			q.Add(slim.Key{Namespace: "aa", Name: fmt.Sprint("urgent", i)})
		}
		synctest.Wait()
		mu.Lock()
		if len(done) != 10 {
			t.Errorf("done are %v", done)
		}
		mu.Unlock()
		time.Sleep(3 * time.Hour)
		r.stop()
		if done["bb/2"] != 2*time.Hour {
			t.Errorf("done are %v", done)
		}
	})
}
