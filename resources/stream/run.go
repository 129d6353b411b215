// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package stream

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/skep-operator/skep/resources/stream/slim"
)

// run is one life of a stream, from its first user to its end: client-go's
// Reflector between our listerWatcher, which talks to the server, and the change
// list, which is its store.
type run[T any] struct {
	*listerWatcher[T]
	cancel context.CancelCauseFunc
	done   chan struct{}

	// While the server does not have the resource:
	misses    int    // answers that it does not, without a look at the definitions
	leaveCRDs func() // ends the use of the source's definitions
}

// The names of what can be wrong.
const (
	conditionConnection = "connection"
	conditionResource   = "resource"
)

// start begins a run, which waits for the one before to end.
func (s *Stream[T]) start() *run[T] {
	ctx, cancel := context.WithCancelCause(context.Background())
	r := &run[T]{
		listerWatcher: newListerWatcher(s),
		cancel:        cancel,
		done:          make(chan struct{}),
	}
	last := s.last
	go func() {
		defer close(r.done)
		if last != nil {
			<-last
		}
		stop := r.followPlan()
		r.loop(ctx)
		stop()
		r.reading.Wait()
		r.found()
		r.conditions.rest()
	}()
	return r
}

// loop keeps the Reflector going and decides how to go on when it gives up.
func (r *run[T]) loop(ctx context.Context) {
	ctx = klog.NewContext(ctx, logr.FromSlogHandler(quiet{r.log.Handler()}))
	reflector := cache.NewReflectorWithOptions(r.listerWatcher, nil, r, cache.ReflectorOptions{
		Name:            r.name,
		TypeDescription: r.kind.String(),
	})
	for ctx.Err() == nil {
		attempt, end := r.refreshes.attempt(ctx)
		err := reflector.ListAndWatchWithContext(attempt)
		asked := attempt.Err() != nil
		end()
		switch {
		case asked:
		case apierrors.IsNotFound(err):
			r.awaitResource(ctx, err)
		case apierrors.IsForbidden(err):
			r.pace.forbid()
		case err != nil:
			r.pace.fail(err)
		}
	}
}

// The store that the Reflector fills.

var _ cache.ReflectorStore = (*run[struct{}])(nil)

// Add implements cache.ReflectorStore.
func (r *run[T]) Add(obj any) error { return r.Update(obj) }

// Update implements cache.ReflectorStore.
func (r *run[T]) Update(obj any) error {
	r.changes.mu.Lock()
	defer r.changes.unlockAndReport()
	switch obj := obj.(type) {
	case *object[T]:
		if r.planned(obj.meta()) {
			r.changes.advance(obj.meta().ResourceVersion)
			return nil
		}
		r.changes.upsert(&obj.value)
	case *named:
		r.changes.cannotRead(obj.meta.Key(), obj.err)
	default:
		return fmt.Errorf("unexpected object %T", obj)
	}
	return nil
}

// Delete implements cache.ReflectorStore.
func (r *run[T]) Delete(obj any) error {
	r.changes.mu.Lock()
	defer r.changes.unlockAndReport()
	deleted, ok := obj.(*named)
	switch {
	case !ok:
		return fmt.Errorf("unexpected object %T", obj)
	case deleted.err != nil:
		r.changes.cannotRead(deleted.meta.Key(), deleted.err)
	case !r.source.plan.Objects().Gone(r.kind.gvr, deleted.meta.Key()):
		r.changes.advance(deleted.meta.ResourceVersion)
	default:
		r.changes.remove(deleted.meta.Key(), deleted.meta.ResourceVersion)
	}
	return nil
}

// Replace implements cache.ReflectorStore.
func (r *run[T]) Replace(items []any, resourceVersion string) error {
	at, err := slim.ParseRevision(resourceVersion)
	if err != nil {
		return err
	}
	objs := make([]*T, 0, len(items))
	var same []slim.Key
	unreadable := map[slim.Key]error{}
	for _, item := range items {
		switch obj := item.(type) {
		case *object[T]:
			objs = append(objs, &obj.value)
		case *unchanged:
			same = append(same, obj.meta.Key())
		case *named:
			unreadable[obj.meta.Key()] = obj.err
		default:
			return fmt.Errorf("unexpected object %T", item)
		}
	}
	r.changes.mu.Lock()
	objs, same = r.mergePlan(objs, same)
	r.changes.replace(objs, same, unreadable, at)
	r.changes.unlockAndReport()
	r.found()
	r.refreshes.replaced()
	return nil
}

// Bookmark implements cache.ReflectorBookmarkStore.
func (r *run[T]) Bookmark(resourceVersion string) error {
	at, err := slim.ParseRevision(resourceVersion)
	if err != nil {
		return err
	}
	r.changes.mu.Lock()
	defer r.changes.mu.Unlock()
	r.changes.advance(at)
	return nil
}

// Resync implements cache.ReflectorStore.
func (r *run[T]) Resync() error { return nil }

// quiet is a log handler that puts what client-go says at debug level: what
// people need to know is said by the stream itself.
type quiet struct{ slog.Handler }

func (q quiet) Enabled(ctx context.Context, _ slog.Level) bool {
	return q.Handler.Enabled(ctx, slog.LevelDebug)
}

func (q quiet) Handle(ctx context.Context, r slog.Record) error {
	r.Level = slog.LevelDebug
	return q.Handler.Handle(ctx, r)
}

func (q quiet) WithAttrs(attrs []slog.Attr) slog.Handler { return quiet{q.Handler.WithAttrs(attrs)} }

func (q quiet) WithGroup(name string) slog.Handler { return quiet{q.Handler.WithGroup(name)} }

func (lw *listerWatcher[T]) connectedSince() time.Time {
	if since := lw.since.Load(); since != nil {
		return *since
	}
	return time.Time{}
}
