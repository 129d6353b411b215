// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package reconcile

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/skep-operator/skep/resources/explain"
	"github.com/skep-operator/skep/resources/k8s"
	"github.com/skep-operator/skep/resources/panics"
	"github.com/skep-operator/skep/resources/stream"
	"github.com/skep-operator/skep/resources/stream/slim"
	"github.com/skep-operator/skep/runtime/health"
	"github.com/skep-operator/skep/runtime/lifecycle"
)

// keys are those that were looked at, and how often.
func (l *looks) keys() map[string]int {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := map[string]int{}
	for key, at := range l.at {
		n[key] = len(at)
	}
	return n
}

// told is what health says is wrong.
func told(tree *health.Tree) (text string) {
	for _, s := range tree.Degraded() {
		text += s.ID + ": " + s.Message + ": " + s.Error + "\n"
	}
	return text
}

// K8S-19: a key whose handling panics waits with a back-off of its own, is named with the line, and the others go on.
func TestAPanicIsThatOfItsKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig()
		r.scope.Book = explain.NewHistory()
		seen := newLooks()
		bad := slim.Key{Namespace: "bb", Name: "bad"}
		l := NewQueue(r.scope, "check", func(_ context.Context, key slim.Key) error {
			if n := seen.note(key.String()); key == bad && n < 4 {
				panic("boom")
			}
			return nil
		})
		r.run(t, l.Run)
		l.Add(bad, k8s.Trigger{Kind: "Widget", Namespace: "bb", Name: "bad"})
		for i := range 10 {
			l.Add(slim.Key{Namespace: "aa", Name: fmt.Sprint(i)})
		}
		time.Sleep(500 * time.Millisecond)
		l.Add(bad) // an event does not cut the pause short
		time.Sleep(3 * time.Second)
		synctest.Wait()
		if got := told(r.tree); !strings.Contains(got, "bb/bad panicked 3 times in a row at resources/reconcile/panic_test.go:") ||
			!strings.Contains(got, "; next try in 4s: boom") {
			t.Errorf("health says %q", got)
		}
		if x := r.scope.Book.For("Widget", "bb", "bad"); len(x.Decisions) != 1 || !strings.Contains(x.Decisions[0].Outcome, "panicked 3 times in a row at resources/reconcile/panic_test.go:") {
			t.Errorf("explain says %+v", x)
		}
		if n := len(seen.keys()); n != 11 {
			t.Errorf("%d keys were reconciled, want 11", n)
		}
		time.Sleep(time.Hour)
		r.stop()
		s := time.Second
		if diff := cmp.Diff([]time.Duration{0, s, 3 * s, 7 * s}, seen.at["bb/bad"]); diff != "" {
			t.Error(diff)
		}
		if got := r.degraded(); len(got) > 0 {
			t.Errorf("afterwards: %v", got)
		}
		if n := strings.Count(r.log.String(), "stack="); n != 1 || strings.Contains(r.log.String(), "level=WARN") {
			t.Errorf("%d stacks in the log, want one:\n%s", n, r.log)
		}
	})
}

// K8S-19: an error of another key does not hide the key that panics.
func TestAKeyThatPanicsIsNamedBesideOthersThatFail(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig()
		l := NewQueue(r.scope, "check", func(_ context.Context, key string) error {
			if key == "bad" {
				panic("boom")
			}
			return errors.New("no")
		}, Workers(1))
		l.Add("bad")
		l.Add("other")
		r.run(t, l.Run)
		synctest.Wait()
		if got := told(r.tree); !strings.Contains(got, "2 failing, other among them; handling bad panicked at ") {
			t.Errorf("health says %q", got)
		}
		r.stop()
	})
}

// K8S-20: where shared state was being changed the job panics, so that the module is built anew. There the key waits, and the others go on.
func TestAPanicInSharedStateRebuildsTheModuleAndSetsTheKeyAside(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig()
		r.scope.panics = newPanicMemory()
		seen := newLooks()
		var mu sync.Mutex
		do := func(_ context.Context, key string) error {
			mu.Lock()
			defer mu.Unlock()
			defer panics.Sharing()
			if n := seen.note(key); key == "bad" && n < 3 {
				panic("boom")
			}
			return nil
		}
		ctx, cancel := context.WithCancel(t.Context())
		var rebuilds atomic.Int32
		run := func() error {
			l := NewQueue(r.scope, "check", do, Workers(1))
			for _, key := range []string{"a", "bad", "b", "c"} {
				l.Add(key)
			}
			return l.Run(ctx)
		}
		done := make(chan struct{})
		go func() {
			defer close(done)
			for ctx.Err() == nil {
				p := new(lifecycle.PanicError)
				if err := lifecycle.Recover(run); errors.As(err, &p) && p.SetAside {
					rebuilds.Add(1)
				} else if ctx.Err() == nil {
					t.Errorf("Run: %v", err)
					return
				}
			}
		}()
		time.Sleep(500 * time.Millisecond)
		if keys := seen.keys(); len(keys) != 4 || rebuilds.Load() != 1 {
			t.Errorf("after %d rebuilds these keys were reconciled: %v", rebuilds.Load(), keys)
		}
		if got := told(r.tree); !strings.Contains(got, "handling bad panicked at resources/reconcile/panic_test.go:") {
			t.Errorf("health says %q", got)
		}
		time.Sleep(time.Minute)
		cancel()
		<-done
		s := time.Second
		if diff := cmp.Diff([]time.Duration{0, s, 3 * s}, seen.at["bad"]); diff != "" || rebuilds.Load() != 2 {
			t.Errorf("%d rebuilds: %s", rebuilds.Load(), diff)
		}
	})
}

// K8S-19: so it is for an object whose change a mapping function panics for, and the change is mapped when its pause is over.
func TestAPanicOfAMappingFunctionIsThatOfItsObject(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		widgets, tree := local(t), health.NewTree()
		for _, name := range []string{"a", "bad", "b"} {
			put(widgets, name)
		}
		widgets.Synced()
		tries := 0
		s := &watched[widget]{kind: kindOf("widgets", "Widget"), stream: widgets, keys: func(ch stream.Change[widget]) []slim.Key {
			if ch.Key.Name == "bad" {
				if tries++; tries < 3 {
					panic("oops")
				}
			}
			return []slim.Key{ch.Key}
		}}
		rec := &recorder{}
		defer testRunner(tree, rec, s).startTest(t)()
		if got, want := strings.Join(rec.recorded(), "; "), "a: Widget a; b: Widget b; extra: "; got != want {
			t.Errorf("reconciled %q, want %q", got, want)
		}
		if got := told(tree); !strings.Contains(got, "Widget bad panicked at resources/reconcile/panic_test.go:") {
			t.Errorf("degraded: %s", got)
		}
		time.Sleep(10 * time.Second)
		if got := rec.recorded(); len(got) != 1 || got[0] != "bad: Widget bad" || len(tree.Degraded()) > 0 {
			t.Errorf("afterwards: reconciled %q, degraded: %v", got, tree.Degraded())
		}
	})
}

// K8S-20: a function that changes a model has another one that takes its place for an object that is set aside.
func TestAnObjectThatIsSetAsideIsKeptInTheModel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		widgets := local(t)
		put(widgets, "a")
		put(widgets, "bad")
		widgets.Synced()
		var aside []string
		newSource := func() *watched[widget] {
			return &watched[widget]{kind: kindOf("widgets", "Widget"), stream: widgets,
				keys: func(ch stream.Change[widget]) []slim.Key {
					defer panics.Sharing()
					if ch.Key.Name == "bad" {
						panic("oops")
					}
					return []slim.Key{ch.Key}
				},
				setAside: func(ch stream.Change[widget], why error) []slim.Key {
					aside = append(aside, ch.Key.Name+": "+why.Error())
					return nil
				}}
		}
		deps := newRig().scope
		deps.panics = newPanicMemory()
		err := lifecycle.Recover(func() error { return newRunner(deps, &recorder{}, []source{newSource()}).run(t.Context()) })
		if p := new(lifecycle.PanicError); !errors.As(err, &p) || !p.SetAside {
			t.Fatalf("the job got %v", err)
		}
		rec := &recorder{}
		defer newRunner(deps, rec, []source{newSource()}).startTest(t)()
		if got := strings.Join(rec.recorded(), "; "); got != "a: Widget a; extra: " {
			t.Errorf("reconciled %q", got)
		}
		if len(aside) != 1 || !strings.HasPrefix(aside[0], "bad: handling Widget bad panicked at ") {
			t.Errorf("set aside: %q", aside)
		}
	})
}
