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

// K8S-22; number 7.2 of the contract's tenants.md: five keys of one namespace that take minutes leave a worker to the others, whatever the
// order in which they came.
func TestOneNamespaceNeverHasAllWorkers(t *testing.T) {
	for name, workers := range map[string]int{"two workers": 2, "four workers": 4} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var mu sync.Mutex
				running, most, ended := map[string]int{}, map[string]int{}, map[string]time.Duration{}
				began := time.Now()
				r := newRig()
				q := NewQueue(r.scope, "derive", func(_ context.Context, key slim.Key) error {
					mu.Lock()
					running[key.Namespace]++
					most[key.Namespace] = max(most[key.Namespace], running[key.Namespace])
					mu.Unlock()
					time.Sleep(map[string]time.Duration{"bb": 4 * time.Minute}[key.Namespace] + time.Second)
					mu.Lock()
					defer mu.Unlock()
					running[key.Namespace]--
					ended[key.String()] = time.Since(began)
					return nil
				}, Workers(workers))
				for i := range 5 {
					q.Add(slim.Key{Namespace: "bb", Name: fmt.Sprint(i)})
				}
				q.Add(slim.Key{Namespace: "aa", Name: "first"})
				r.run(t, q.Run)
				time.Sleep(time.Minute)
				q.Add(slim.Key{Namespace: "aa", Name: "second"})
				time.Sleep(time.Hour)
				r.stop()
				if most["bb"] != workers-1 {
					t.Errorf("bb had %d workers of %d at once", most["bb"], workers)
				}
				if ended["aa/first"] > 2*time.Second || ended["aa/second"] != time.Minute+time.Second || len(ended) != 7 {
					t.Errorf("done after %v", ended)
				}
			})
		})
	}
}

// K8S-22: namespaces take turns, so that thousands of keys of one do not come before those of others.
func TestNamespacesTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var order []string
		r := newRig()
		q := NewQueue(r.scope, "check", func(_ context.Context, key slim.Key) error {
			order = append(order, key.String())
			return nil
		}, Workers(1), Urgent(func(key slim.Key) bool { return key.Name == "urgent" }))
		for _, key := range []string{"bb/1", "bb/2", "bb/3", "aa/1", "n1", "n2", "cc/1", "aa/2", "bb/urgent"} {
			namespace, name, ok := strings.Cut(key, "/")
			if !ok {
				namespace, name = "", key
			}
			q.Add(slim.Key{Namespace: namespace, Name: name})
		}
		r.run(t, q.Run)
		synctest.Wait()
		r.stop()
		if want := []string{"bb/urgent", "bb/1", "aa/1", "n1", "cc/1", "bb/2", "aa/2", "n2", "bb/3"}; !slices.Equal(order, want) {
			t.Errorf("%q, want %q", order, want)
		}
	})
}

// K8S-22: keys without a namespace may have all workers, also where keys are of another type; a function can name their namespaces.
func TestKeysWithoutANamespaceMayHaveAllWorkers(t *testing.T) {
	for name, test := range map[string]struct {
		opts []Option
		want int
	}{
		"nodes":             {nil, 4},
		"a namespace":       {[]Option{NamespaceOf(func(string) string { return "bb" })}, 3},
		"a single worker":   {[]Option{NamespaceOf(func(string) string { return "bb" }), Workers(1)}, 1},
		"several of a kind": {[]Option{NamespaceOf(func(key string) string { return key })}, 4},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				release := make(chan struct{})
				seen := newLooks()
				r := newRig()
				q := NewQueue(r.scope, "check", func(_ context.Context, key string) error { seen.note(key); <-release; return nil }, test.opts...)
				for k := range 6 {
					q.Add(fmt.Sprint(k))
				}
				r.run(t, q.Run)
				synctest.Wait()
				if n := len(seen.at); n != test.want {
					t.Errorf("%d keys are reconciled at once, want %d", n, test.want)
				}
				close(release)
				synctest.Wait()
				if n := len(seen.at); n != 6 {
					t.Errorf("%d keys were reconciled, want 6", n)
				}
				r.stop()
			})
		})
	}
}
