// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package reconcile

import (
	"context"
	"errors"
	"log/slog"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/skep-operator/skep/resources/k8s"
	"github.com/skep-operator/skep/resources/stream"
	"github.com/skep-operator/skep/resources/stream/slim"
	"github.com/skep-operator/skep/runtime/cell"
	"github.com/skep-operator/skep/runtime/health"
)

type widget struct {
	slim.Meta `json:"metadata"`
}

func kindOf(resource, name string) stream.Kind[widget] {
	return stream.Custom[widget](schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: resource}).OfKind(name)
}

// recorder is a Reconciler that records its keys with their triggers.
type recorder struct {
	mu        sync.Mutex
	all       []string
	opened    bool
	reconcile func(context.Context, slim.Key) (Result, error)
}

func (r *recorder) Open(context.Context) error {
	r.opened = true
	return nil
}

func (r *recorder) Synced(context.Context) []slim.Key { return []slim.Key{{Name: "extra"}} }

func (r *recorder) Reconcile(ctx context.Context, key slim.Key) (Result, error) {
	var triggers []string
	for _, t := range k8s.CauseOf(ctx).Triggers {
		t.ResourceVersion = ""
		triggers = append(triggers, t.String())
	}
	r.mu.Lock()
	r.all = append(r.all, key.String()+": "+strings.Join(triggers, ", "))
	r.mu.Unlock()
	if r.reconcile == nil {
		return Result{}, nil
	}
	return r.reconcile(ctx, key)
}

func (r *recorder) recorded() []string {
	synctest.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	defer func() { r.all = nil }()
	return slices.Sorted(slices.Values(r.all))
}

func local(t *testing.T) *stream.Local[widget] {
	t.Helper()
	l, err := stream.NewLocal[widget]()
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func put(l *stream.Local[widget], name string) slim.Revision {
	w := &widget{}
	w.Name = name
	l.Upsert(w)
	return w.ResourceVersion
}

// toA maps the changes of any object to the key a.
func toA(stream.Change[widget]) []slim.Key { return []slim.Key{{Name: "a"}} }

func own(ch stream.Change[widget]) []slim.Key { return []slim.Key{ch.Key} }

func testRunner(tree *health.Tree, rec Reconciler, sources ...source) *runner {
	return newRunner(Deps{Module: cell.ModuleInfo{ID: "test"}, Log: slog.New(slog.DiscardHandler), Health: tree.Reporter("test")}, rec, sources)
}

// startTest runs a runner until stop is called.
func (r *runner) startTest(t *testing.T) (stop func()) {
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := r.run(ctx); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	}()
	return func() { cancel(); <-done }
}

// Nothing is reconciled before all watches are synced; then each key is, once, with what triggered it.
func TestControllerBeginsWhenAllWatchesAreSynced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		widgets, gadgets := local(t), local(t)
		put(widgets, "a")
		put(widgets, "b")
		widgets.Synced()
		rec := &recorder{}
		stop := testRunner(health.NewTree(), rec,
			&watched[widget]{kind: kindOf("widgets", "Widget"), stream: widgets, keys: own}, &watched[widget]{kind: kindOf("gadgets", "Gadget"), stream: gadgets, keys: toA}).startTest(t)
		defer stop()
		time.Sleep(time.Hour)
		if got := rec.recorded(); len(got) > 0 || !rec.opened {
			t.Fatalf("before the second watch is synced: %q, opened %t", got, rec.opened)
		}
		put(gadgets, "g")
		gadgets.Synced()
		if got, want := rec.recorded(), []string{"a: Widget a, Gadget g", "b: Widget b", "extra: "}; !slices.Equal(got, want) {
			t.Errorf("reconciled %q, want %q", got, want)
		}
		widgets.Delete(slim.Key{Name: "b"})
		if got, want := rec.recorded(), []string{"b: Widget b"}; !slices.Equal(got, want) {
			t.Errorf("reconciled %q, want %q", got, want)
		}
	})
}

// A key is reconciled again only when the store shows what it wrote.
func TestControllerReadsItsWrites(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		widgets := local(t)
		at := put(widgets, "a")
		widgets.Synced()
		kind := kindOf("widgets", "Widget")
		rec := &recorder{reconcile: func(ctx context.Context, key slim.Key) (Result, error) {
			return Result{RequeueAfter: time.Second}, nil
		}}
		r := testRunner(health.NewTree(), rec, &watched[widget]{kind: kind, stream: widgets, keys: own})
		defer r.startTest(t)()
		rec.recorded() // the first, and the one of Synced
		r.recordWrite(slim.Key{Name: "a"}, k8s.Ref{Resource: kind.Resource(), Name: "a", Subresource: "status"}, at+1)
		time.Sleep(3 * time.Second) // less than staleLimit
		for _, got := range rec.recorded() {
			if strings.HasPrefix(got, "a:") {
				t.Errorf("reconciled with a stale store: %q", got)
			}
		}
		if shown := put(widgets, "a"); shown <= at {
			t.Fatalf("revision %s after %s", shown, at)
		}
		if got := rec.recorded(); !slices.Contains(got, "a: Widget a") && !slices.Contains(got, "a: Widget a, Widget a") {
			t.Errorf("reconciled %q after the store shows the write", got)
		}
	})
}

// What a key created, and another client deleted before the watch showed it, is no change: the key is reconciled again all the
// same, once.
func TestControllerLosesNoWrites(t *testing.T) {
	for _, knownLate := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			widgets, gadgets := local(t), local(t)
			widgets.Synced()
			put(gadgets, "a")
			gadgets.Synced()
			kind, rec, busy := kindOf("gadgets", "Gadget"), &recorder{}, make(chan struct{})
			close(busy)
			r := testRunner(health.NewTree(), rec, &watched[widget]{kind: kindOf("widgets", "Widget"), stream: widgets, keys: own},
				&watched[widget]{kind: kind, stream: gadgets, keys: func(ch stream.Change[widget]) []slim.Key {
					<-busy
					return own(ch)
				}})
			defer r.startTest(t)()
			rec.recorded()
			busy = make(chan struct{})
			put(gadgets, "b")
			synctest.Wait()
			created := put(gadgets, "copy-of-a")
			write := func() {
				r.recordWrite(slim.Key{Name: "a"}, k8s.Ref{Resource: kind.Resource(), Name: "copy-of-a"}, created)
			}
			if !knownLate {
				write()
			}
			gadgets.Delete(slim.Key{Name: "copy-of-a"})
			close(busy)
			want := []string{"a: Gadget copy-of-a", "b: Gadget b"}
			got := rec.recorded()
			if knownLate { // the response comes after the events
				write()
				got = append(rec.recorded(), got...)
			}
			if !slices.Equal(got, want) {
				t.Errorf("known late %t: reconciled %q, want %q", knownLate, got, want)
			}
			r.closeGap(kind.Resource(), created+100)
			if got := rec.recorded(); len(got) > 0 {
				t.Errorf("known late %t: reconciled %q again", knownLate, got)
			}
		})
	}
}

// A key is reconciled again only when the store does not have what it deleted.
func TestControllerSeesItsDeletions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		widgets := local(t)
		const uid = "5a9d7a0e-0f5b-4c6e-8f0e-2f3d8c5a1b7e"
		w := &widget{}
		w.Name, w.UID = "a", slim.ParseUID(uid)
		widgets.Upsert(w)
		widgets.Synced()
		kind, rec := kindOf("widgets", "Widget"), &recorder{}
		r := testRunner(health.NewTree(), rec, &watched[widget]{kind: kind, stream: widgets, keys: own})
		defer r.startTest(t)()
		rec.recorded()
		r.recordWrite(slim.Key{Name: "a"}, k8s.Ref{Resource: kind.Resource(), Name: "a", UID: uid}, 0)
		r.queue.Add(slim.Key{Name: "a"})
		put(widgets, "b") // its revision tells nothing of a
		time.Sleep(staleLimit - time.Second)
		if got, want := rec.recorded(), []string{"b: Widget b"}; !slices.Equal(got, want) {
			t.Errorf("reconciled %q before the deletion is shown, want %q", got, want)
		}
		widgets.Delete(slim.Key{Name: "a"})
		if got := rec.recorded(); len(got) == 0 || !strings.HasPrefix(got[0], "a: ") {
			t.Errorf("reconciled %q after it", got)
		}
	})
}

// A watch that never shows a write does not stop the key for ever.
func TestControllerGoesOnWithoutItsWrites(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		widgets := local(t)
		put(widgets, "a")
		widgets.Synced()
		rec, kind := &recorder{}, kindOf("widgets", "Widget")
		s := &watched[widget]{kind: kind, stream: widgets, keys: own}
		r := testRunner(health.NewTree(), rec, s)
		r.recordWrite(slim.Key{Name: "a"}, k8s.Ref{Resource: kind.Resource()}, 1<<40)
		defer r.startTest(t)()
		time.Sleep(staleLimit + time.Second)
		if got := rec.recorded(); !slices.Contains(got, "a: Widget a") {
			t.Errorf("reconciled %q", got)
		}
	})
}

// What the API server does not find is no failure, and is reconciled again until the deletion arrives.
func TestControllerRechecksWhatIsNotFound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		widgets := local(t)
		put(widgets, "a")
		widgets.Synced()
		kind, tree := kindOf("widgets", "Widget"), health.NewTree()
		var other atomic.Bool // what is missing is something that a needs
		rec := &recorder{reconcile: func(_ context.Context, key slim.Key) (Result, error) {
			if key.Name != "a" {
				return Result{}, nil
			}
			missing := "a"
			if other.Load() {
				missing = "b"
			}
			return Result{}, apierrors.NewNotFound(kind.Resource().GroupResource(), missing)
		}}
		r := testRunner(tree, rec, &watched[widget]{kind: kind, stream: widgets, keys: own})
		defer r.startTest(t)()
		time.Sleep(3*recheckInterval + recheckInterval/2)
		if got := rec.recorded(); len(got) != 1+4 || len(tree.Degraded()) > 0 { // and the key of Synced
			t.Errorf("reconciled %q, degraded: %v", got, tree.Degraded())
		}
		other.Store(true)
		time.Sleep(2 * recheckInterval)
		if rec.recorded(); len(tree.Degraded()) == 0 {
			t.Error("health is OK after another object was not found")
		}
	})
}

// pendingHandover is a hand-over that is known once its channel is closed.
type pendingHandover struct{ known chan struct{} }

func (h pendingHandover) PredecessorRevision(ctx context.Context, _ schema.GroupVersionResource) (uint64, bool, error) {
	select {
	case <-h.known:
		return 1, true, nil
	case <-ctx.Done():
		return 0, false, ctx.Err()
	}
}
func (pendingHandover) WasLeader() bool                                  { return false }
func (pendingHandover) RecordSynced(schema.GroupVersionResource, uint64) {}

// With AfterPredecessor, nothing is opened or reconciled before the stream shows what earlier leaders wrote.
func TestControllerAfterPredecessor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		widgets := local(t)
		put(widgets, "a")
		widgets.Synced()
		kind, rec, handover := kindOf("widgets", "Widget"), &recorder{}, pendingHandover{make(chan struct{})}
		d := &declaration[*recorder]{}
		For[*recorder](kind)(d)
		AfterPredecessor[*recorder](kind)(d)
		deps := Deps{Module: cell.ModuleInfo{ID: "test"}, Log: slog.New(slog.DiscardHandler), Health: health.NewTree().Reporter("test")}
		newRunner := reflect.ValueOf(d.constructor())
		var args []reflect.Value
		for i, v := range []any{rec, deps, widgets, widgets, handover} {
			args = append(args, reflect.ValueOf(v).Convert(newRunner.Type().In(i)))
		}
		r := newRunner.Call(args)[0].Interface().(*runner)
		defer r.startTest(t)()
		time.Sleep(time.Hour)
		if got := rec.recorded(); len(got) > 0 || rec.opened {
			t.Errorf("before the stream shows the writes of earlier leaders: %q, opened %t", got, rec.opened)
		}
		close(handover.known)
		if got, want := rec.recorded(), []string{"a: Widget a", "extra: "}; !slices.Equal(got, want) || !rec.opened {
			t.Errorf("reconciled %q, want %q; opened %t", got, want, rec.opened)
		}
	})
}

// optioned is a Reconciler with options of its own.
type optioned struct{ *recorder }

func (optioned) QueueOptions() []Option { return []Option{Workers(2), Backoff(time.Minute, time.Hour)} }

// A controller chooses the workers and the back-off of its queue.
func TestControllerQueueOptions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		widgets := local(t)
		for _, name := range []string{"a", "b", "c"} {
			put(widgets, name)
		}
		widgets.Synced()
		var running, most atomic.Int32
		began := time.Now()
		var retried time.Duration
		rec := optioned{&recorder{}}
		rec.reconcile = func(_ context.Context, key slim.Key) (Result, error) {
			most.Store(max(most.Load(), running.Add(1)))
			defer running.Add(-1)
			time.Sleep(time.Second)
			if key.Name != "c" || retried > 0 {
				return Result{}, nil
			}
			retried = time.Since(began)
			return Result{}, errors.New("once")
		}
		defer testRunner(health.NewTree(), rec, &watched[widget]{kind: kindOf("widgets", "Widget"), stream: widgets, keys: own}).startTest(t)()
		time.Sleep(30 * time.Second)
		if got := len(rec.recorded()); most.Load() != 2 || got != 4 { // with the key that Synced returns
			t.Errorf("%d workers, %d attempts", most.Load(), got)
		}
		time.Sleep(time.Minute)
		if got := rec.recorded(); len(got) != 1 {
			t.Errorf("after the back-off: %v", got)
		}
	})
}

// Keys that follow from no stream are reconciled with their triggers, also before the function that enqueues them returns.
func TestControllerFollows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		widgets := local(t)
		widgets.Synced()
		next := make(chan string)
		rec := &recorder{}
		follow := followed{func(ctx context.Context, enqueue Enqueue) {
			for {
				select {
				case name := <-next:
					enqueue(slim.Key{Name: name}, k8s.Trigger{Kind: "Source", Name: "s"})
				case <-ctx.Done():
					return
				}
			}
		}}
		stop := testRunner(health.NewTree(), rec, &watched[widget]{kind: kindOf("widgets", "Widget"), stream: widgets, keys: own}, follow).startTest(t)
		defer stop()
		if got, want := rec.recorded(), []string{"extra: "}; !slices.Equal(got, want) {
			t.Errorf("reconciled %q, want %q", got, want)
		}
		next <- "a"
		if got, want := rec.recorded(), []string{"a: Source s"}; !slices.Equal(got, want) {
			t.Errorf("reconciled %q, want %q", got, want)
		}
	})
}
