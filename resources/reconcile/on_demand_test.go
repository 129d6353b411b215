// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package reconcile

import (
	"context"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/skep-operator/skep/resources/stream"
	"github.com/skep-operator/skep/resources/stream/slim"
	"github.com/skep-operator/skep/runtime/health"
)

// demand is a controller whose key a needs gadgets while it exists.
type demand struct {
	recorder
	gadgets OnDemand[widget]
}

func newDemand(widgets *stream.Local[widget]) (d *demand, complete func() bool) {
	d = &demand{}
	store := false
	d.reconcile = func(ctx context.Context, key slim.Key) (Result, error) {
		all, err := widgets.Store(ctx)
		if err != nil {
			return Result{}, err
		}
		if _, exists := all.Get(key); exists && key.Name == "a" {
			d.mu.Lock()
			defer d.mu.Unlock()
			store = d.gadgets.Need(key) != nil
		} else {
			d.gadgets.Drop(key)
		}
		return Result{}, nil
	}
	return d, func() bool {
		synctest.Wait()
		d.mu.Lock()
		defer d.mu.Unlock()
		return store
	}
}

func (d *demand) watched(gadgets *stream.Local[widget]) source {
	s := newWatched(kindOf("gadgets", "Gadget"), stream.Resource[widget](gadgets), d, func(d *demand, ch stream.Change[widget]) []slim.Key {
		if key := (slim.Key{Name: "a"}); d.gadgets.Needs(key) {
			return []slim.Key{key}
		}
		return nil
	})
	return &watchedOnDemand[widget]{s, &d.gadgets}
}

// A kind on demand is watched while a key needs it, and a key that waits for the store is reconciled when it is complete.
func TestWatchesOnDemand(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		widgets, gadgets := local(t), local(t)
		put(widgets, "b")
		widgets.Synced()
		d, complete := newDemand(widgets)
		users := func() int {
			synctest.Wait()
			return gadgets.State().Users
		}
		r := testRunner(health.NewTree(), &d.recorder, newWatched(kindOf("widgets", "Widget"), stream.Resource[widget](widgets), d, func(_ *demand, ch stream.Change[widget]) []slim.Key { return own(ch) }), d.watched(gadgets))
		stop := r.startTest(t)
		defer stop()
		if got, want := d.recorded(), []string{"b: Widget b", "extra: "}; !slices.Equal(got, want) {
			t.Fatalf("reconciled %q without the kind, want %q", got, want)
		}
		if n := users(); n != 0 {
			t.Errorf("%d users before a key needs the kind", n)
		}
		put(widgets, "a")
		if n := users(); n == 0 || complete() {
			t.Fatalf("%d users, complete %t: the kind is not synced", n, complete())
		}
		d.recorded()
		for range 2 { // the watch ends, and begins again
			put(gadgets, "g")
			gadgets.Synced()
			if got := d.recorded(); !complete() || len(got) == 0 {
				t.Fatalf("complete %t after the sync, reconciled %q", complete(), got)
			}
			put(gadgets, "h")
			if got, want := d.recorded(), []string{"a: Gadget h"}; !slices.Equal(got, want) {
				t.Errorf("reconciled %q, want %q", got, want)
			}
			widgets.Delete(slim.Key{Name: "a"})
			if n := users(); n != 0 {
				t.Errorf("%d users after the last key", n)
			}
			put(gadgets, "i")
			if got, want := d.recorded(), []string{"a: Widget a"}; !slices.Equal(got, want) {
				t.Errorf("reconciled %q, want %q", got, want)
			}
			put(widgets, "a")
		}
	})
}

// A dry run does not end between the need for a kind and its watch.
func TestOnDemandInADryRun(t *testing.T) {
	gadgets := local(t)
	d, _ := newDemand(local(t))
	source := d.watched(gadgets).(*watchedOnDemand[widget])
	if load := source.load(); len(load.Busy) > 0 {
		t.Errorf("busy with %q before a key needs the kind", load.Busy)
	}
	d.gadgets.Need(slim.Key{Name: "a"})
	gadgets.Synced()
	if load := source.load(); len(load.Busy) != 1 || !strings.Contains(load.Busy[0], "gadgets") {
		t.Errorf("busy with %q before the watch", load.Busy)
	}
}
