// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package reflector

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/skep-operator/skep/resources/dryrun"
	"github.com/skep-operator/skep/resources/stream/internal/changelog"
	"github.com/skep-operator/skep/resources/stream/internal/conditions"
	"github.com/skep-operator/skep/resources/stream/slim"
)

// Config says what a reflector reads, and where.
type Config[P any] struct {
	Name      string // of the stream
	Resource  schema.GroupVersionResource
	Custom    bool   // defined by a CustomResourceDefinition
	Kind      string // of Resource; "" if it is not known
	Namespace string // "" for all
	Labels    string // selectors
	Fields    string
	Codec     Codec[P]

	Connect     func(ctx context.Context) (rest.Interface, error)
	Definitions Definitions
	Plan        *dryrun.Plan // nil: a real run
	Memory      *Memory      // nil: no bound
	Logger      *slog.Logger
	Conditions  *conditions.Set
}

// Reflector is client-go's Reflector between our listerWatcher, which sends the
// requests, and the change list, which is its store.
type Reflector[P any] struct {
	*listerWatcher[P]
	cancel context.CancelCauseFunc
	done   chan struct{}

	// While the server does not have the resource:
	notFoundCount      int // 404s in a row, where definitions are not known
	releaseDefinitions func()

	namelessRelists namelessRelister
}

// Start starts a reflector once previous is closed; nil is none.
func Start[P any](c Config[P], previous <-chan struct{}) *Reflector[P] {
	ctx, cancel := context.WithCancelCause(context.Background())
	r := &Reflector[P]{listerWatcher: newListerWatcher(c), cancel: cancel, done: make(chan struct{})}
	go func() {
		defer close(r.done)
		if previous != nil {
			<-previous
		}
		stop := r.followPlan()
		r.loop(ctx)
		stop()
		r.reading.Wait()
		r.Memory.removeAll(&r.large)
		r.changes.Lock()
		r.namelessRelists.stop()
		r.changes.Unlock()
		r.resourceFound()
		r.Conditions.Clear()
	}()
	return r
}

// Changes is the change list.
func (r *Reflector[P]) Changes() *changelog.Log[P] { return r.changes }

// Stop closes the change list and ends the reflector. Done is closed when it has
// ended.
func (r *Reflector[P]) Stop() {
	r.cancel(changelog.ErrClosed)
	r.changes.Close()
}

// Done is closed when the reflector has ended.
func (r *Reflector[P]) Done() <-chan struct{} { return r.done }

// ConnectedSince is the start of the watch; zero if there is none.
func (r *Reflector[P]) ConnectedSince() time.Time {
	if since := r.since.Load(); since != nil {
		return *since
	}
	return time.Time{}
}

// loop restarts the Reflector, after a delay that depends on its error.
func (r *Reflector[P]) loop(ctx context.Context) {
	ctx = klog.NewContext(ctx, logr.FromSlogHandler(quiet{r.Logger.Handler()}))
	reflector := cache.NewReflectorWithOptions(r.listerWatcher, nil, r, cache.ReflectorOptions{
		Name:            r.Name,
		TypeDescription: r.Resource.GroupResource().String(),
	})
	for ctx.Err() == nil {
		attempt, end := r.relists.attempt(ctx)
		err := reflector.ListAndWatchWithContext(attempt)
		asked := attempt.Err() != nil
		end()
		switch {
		case asked:
		case apierrors.IsNotFound(err):
			r.awaitResource(ctx, err)
		case apierrors.IsForbidden(err):
			r.backoff.forbidden()
		case err != nil:
			r.backoff.recordFailure(err)
		}
	}
}

// The store that the Reflector fills.

var _ cache.ReflectorStore = (*Reflector[*struct{}])(nil)

// Add implements cache.ReflectorStore.
func (r *Reflector[P]) Add(obj any) error { return r.Update(obj) }

// Update implements cache.ReflectorStore.
func (r *Reflector[P]) Update(obj any) error {
	r.changes.Lock()
	defer r.changes.Unlock()
	switch obj := obj.(type) {
	case item[P]:
		if r.isPlanned(obj.meta()) {
			r.changes.Advance(obj.meta().ResourceVersion)
			return nil
		}
		r.changes.Upsert(obj.pointer())
	case *metadataOnly:
		r.changes.MarkUnreadable(obj.meta.Key(), obj.err)
		r.scheduleNamelessRelist()
	default:
		return fmt.Errorf("unexpected object %T", obj)
	}
	return nil
}

// Delete implements cache.ReflectorStore.
func (r *Reflector[P]) Delete(obj any) error {
	r.changes.Lock()
	defer r.changes.Unlock()
	deleted, ok := obj.(*metadataOnly)
	switch {
	case !ok:
		return fmt.Errorf("unexpected object %T", obj)
	case deleted.err != nil:
		r.changes.MarkUnreadable(deleted.meta.Key(), deleted.err)
		r.scheduleNamelessRelist()
	case !r.Plan.Objects().Gone(r.Resource, deleted.meta.Key()):
		r.changes.Advance(deleted.meta.ResourceVersion)
	default:
		r.changes.Remove(deleted.meta.Key(), deleted.meta.ResourceVersion)
	}
	return nil
}

// Replace implements cache.ReflectorStore.
func (r *Reflector[P]) Replace(items []any, resourceVersion string) error {
	at, err := slim.ParseRevision(resourceVersion)
	if err != nil {
		return err
	}
	objs := make([]P, 0, len(items))
	var same []slim.Key
	undecoded := map[slim.Key]error{}
	for _, listed := range items {
		switch obj := listed.(type) {
		case item[P]:
			objs = append(objs, obj.pointer())
		case *unchanged:
			same = append(same, obj.meta.Key())
		case *metadataOnly:
			undecoded[obj.meta.Key()] = obj.err
		default:
			return fmt.Errorf("unexpected object %T", listed)
		}
	}
	r.changes.Lock()
	objs, same = r.mergePlan(objs, same)
	r.changes.Replace(objs, same, undecoded, at)
	r.Memory.retain(&r.large, func(key slim.Key) bool { _, exists := r.changes.Current(key); return exists })
	r.scheduleNamelessRelist()
	r.changes.Unlock()
	r.resourceFound()
	r.relists.complete()
	return nil
}

// Bookmark implements cache.ReflectorBookmarkStore.
func (r *Reflector[P]) Bookmark(resourceVersion string) error {
	at, err := slim.ParseRevision(resourceVersion)
	if err != nil {
		return err
	}
	r.changes.Lock()
	defer r.changes.Unlock()
	r.changes.Advance(at)
	return nil
}

// Resync implements cache.ReflectorStore.
func (r *Reflector[P]) Resync() error { return nil }

// quiet is a log handler that logs the messages of client-go at debug level: the
// stream logs its conditions itself.
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
