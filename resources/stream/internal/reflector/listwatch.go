// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package reflector

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"github.com/skep-operator/skep/resources/dryrun"
	"github.com/skep-operator/skep/resources/k8s"
	"github.com/skep-operator/skep/resources/stream/internal/changelog"
	"github.com/skep-operator/skep/resources/stream/internal/conditions"
	"github.com/skep-operator/skep/resources/stream/slim"
)

// listerWatcher makes the requests of a stream and decodes the answers as they
// arrive: no list is ever in memory as a whole, no full object at all.
type listerWatcher[P any] struct {
	Config[P]
	timing  timing
	changes *changelog.Log[P]
	backoff *requestBackoff
	reading sync.WaitGroup // lists and watches that are being read
	since   atomic.Pointer[time.Time]

	relists         relists
	large           listing
	progress        progress
	refused         atomic.Pointer[error] // of the last request for initial events
	suspectRollback atomic.Bool           // the server may have gone back since it was seen
}

var _ cache.ListerWatcherWithContext = (*listerWatcher[*struct{}])(nil)

func newListerWatcher[P any](c Config[P]) *listerWatcher[P] {
	lw := &listerWatcher[P]{
		Config: c, timing: defaultTiming, changes: changelog.New[P](c.Conditions), backoff: newRequestBackoff(defaultTiming),
	}
	lw.large.again = func() { lw.relists.add() }
	return lw
}

// fit cuts an object of a message down if there is no memory for it.
func (lw *listerWatcher[P]) fit(obj any, message int) { lw.Memory.fit(&lw.large, obj, message) }

// List implements cache.ListerWatcher, which the Reflector does not call.
func (lw *listerWatcher[P]) List(opts metav1.ListOptions) (runtime.Object, error) {
	return lw.ListWithContext(context.Background(), opts)
}

// Watch implements cache.ListerWatcher, which the Reflector does not call.
func (lw *listerWatcher[P]) Watch(opts metav1.ListOptions) (watch.Interface, error) {
	return lw.WatchWithContext(context.Background(), opts)
}

// ListWithContext implements cache.ListerWatcherWithContext. The Reflector
// falls back to it when a request for initial events fails for whatever reason;
// where a list would fail for the same reason the server is spared the attempt.
func (lw *listerWatcher[P]) ListWithContext(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if err := lw.refused.Swap(nil); err != nil {
		return nil, *err
	}
	lw.reading.Add(1)
	defer lw.reading.Done()
	opts.ResourceVersion = lw.relists.resourceVersionFor(opts.ResourceVersion)
	body, err := lw.request(ctx, opts)
	if err != nil {
		return nil, err
	}
	defer body.Close()
	body.limitIdle(lw.timing.silence)
	list := &internalversion.List{}
	dec := lw.newDecoder()
	list.ListMeta, err = dec.list(body, func(obj runtime.Object) { list.Items = append(list.Items, lw.dedupe(obj)) })
	if err == nil && hasNoRevision(list.ResourceVersion) {
		err = errNoRevision
	}
	if err != nil {
		return nil, lw.recordFailure("list", body.cause(err))
	}
	lw.Memory.listed(&lw.large)
	lw.markConnected()
	return list, nil
}

var errNoRevision = errors.New("list has no resourceVersion")

// hasNoRevision reports whether the resourceVersion of a list names no state of the server: a watch from there could
// miss deletions.
func hasNoRevision(resourceVersion string) bool {
	return resourceVersion == "" || resourceVersion == "0"
}

// markConnected records that something was read.
func (lw *listerWatcher[P]) markConnected() {
	lw.backoff.reset()
	lw.Conditions.SetAndReport(conditions.Connection, nil)
}

// WatchWithContext implements cache.ListerWatcherWithContext.
func (lw *listerWatcher[P]) WatchWithContext(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
	opts.Watch = true
	w := &watcher[P]{listerWatcher: lw, opts: opts, initial: opts.SendInitialEvents != nil && *opts.SendInitialEvents}
	w.ctx, w.cancel = context.WithCancel(ctx)
	if w.initial {
		w.opts.ResourceVersion = lw.relists.resourceVersionFor(opts.ResourceVersion)
	}
	body, err := w.open()
	if err != nil {
		w.cancel()
		return nil, w.forReflector(err)
	}
	w.events = make(chan watch.Event, watchBuffer)
	lw.reading.Add(1)
	go w.run(body)
	return w, nil
}

// watchBuffer is the number of decoded events between the reader of a watch and
// the Reflector: enough for neither to wait for the other's goroutine at every
// event.
const watchBuffer = 64

// request sends a list or watch and returns the answer's body. The error is the
// server's, if it answered; it has been reported.
func (lw *listerWatcher[P]) request(ctx context.Context, opts metav1.ListOptions) (*body, error) {
	return lw.requestFields(ctx, opts, lw.Fields)
}

// requestFields is request for the objects that a field selector matches.
func (lw *listerWatcher[P]) requestFields(ctx context.Context, opts metav1.ListOptions, fields string) (*body, error) {
	verb := "list"
	if opts.Watch {
		verb = "watch"
	}
	opts.LabelSelector, opts.FieldSelector = lw.Labels, fields
	if err := lw.backoff.await(ctx); err != nil {
		return nil, err
	}
	client, err := lw.Connect(ctx)
	if err != nil {
		return nil, lw.recordFailure(verb, err)
	}
	b := newBody(k8s.OwnPauses(dryrun.AsIs(ctx)))
	unanswered := time.AfterFunc(lw.timing.answer, func() { b.cancel(errSilent{"no answer", lw.timing.answer}) })
	b.ReadCloser, err = client.Get().
		AbsPath(lw.path()...).
		SetHeader("Accept", lw.accept(opts.Watch)).
		SetHeader("Accept-Encoding", "identity"). // to inflate a list costs more than all of its decoding
		SpecificallyVersionedParams(&opts, metav1.ParameterCodec, metav1.SchemeGroupVersion).
		MaxRetries(0). // the delays are ours, so that health shows them
		Stream(b.ctx)
	unanswered.Stop()
	if err != nil {
		b.cancel(nil)
		return nil, lw.recordFailure(verb, b.cause(err))
	}
	lw.backoff.answered()
	return b, nil
}

// recordFailure reports the error of a request or its answer, and delays the next one.
func (lw *listerWatcher[P]) recordFailure(verb string, err error) error {
	if lw.reportError(verb, err) {
		lw.backoff.recordFailure(err)
	}
	return err
}

// reportError sets the condition of an error, if it is one.
func (lw *listerWatcher[P]) reportError(verb string, err error) (reported bool) {
	switch {
	case errors.Is(err, context.Canceled), verb == "watch" && isUnsupported(err), apierrors.IsNotFound(err):
		return false // no fault, or awaitResource reports it
	case isExpired(err):
		if !lw.backoff.recordExpired() {
			return false
		}
		lw.Conditions.SetAndReport(conditions.Connection, fmt.Errorf("cannot %s %s, the server wants each attempt to start at another revision: %w", verb, lw.Resource.GroupResource(), err))
	case apierrors.IsForbidden(err):
		lw.Conditions.SetAndReport(conditions.Connection, fmt.Errorf("not allowed to %s %s, grant it in the operator's role: %w", verb, lw.Resource.GroupResource(), err))
	default:
		lw.Conditions.SetAndReport(conditions.Connection, fmt.Errorf("cannot %s %s, retrying: %w", verb, lw.Resource.GroupResource(), err))
	}
	return true
}

// isExpired reports whether the server requires a list at another revision.
func isExpired(err error) bool {
	return apierrors.IsResourceExpired(err) || apierrors.IsGone(err) ||
		apierrors.HasStatusCause(err, metav1.CauseTypeResourceVersionTooLarge)
}

// isUnsupported reports whether the server does not stream initial events.
func isUnsupported(err error) bool { return apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) }

func (lw *listerWatcher[P]) path() []string {
	gvr := lw.Resource
	path := []string{"/apis", gvr.Group, gvr.Version}
	if gvr.Group == "" {
		path = []string{"/api", gvr.Version}
	}
	if lw.Namespace != "" {
		path = append(path, "namespaces", lw.Namespace)
	}
	return append(path, gvr.Resource)
}

// accept returns the media types that the codec reads, best first.
func (lw *listerWatcher[P]) accept(watch bool) string {
	types := []string{runtime.ContentTypeJSON}
	if lw.Codec.SpeaksProtobuf() {
		types = []string{runtime.ContentTypeProtobuf, runtime.ContentTypeJSON}
	}
	if lw.Codec.MetadataOnly() {
		kind := "PartialObjectMetadataList"
		if watch {
			kind = "PartialObjectMetadata"
		}
		for i, t := range types {
			types[i] = t + ";as=" + kind + ";g=meta.k8s.io;v=v1"
		}
	}
	return strings.Join(types, ",")
}

// dedupe returns unchanged in place of an object that the stream keeps already, so
// that a relist does not need the memory twice.
func (lw *listerWatcher[P]) dedupe(obj runtime.Object) runtime.Object {
	fresh, ok := obj.(item[P])
	if !ok {
		return obj
	}
	meta := fresh.meta()
	held, exists := lw.changes.Get(meta.Key())
	if exists && slim.MetaOf(held).ResourceVersion == meta.ResourceVersion && slim.CutOf(held) == slim.CutOf(fresh.pointer()) {
		return &unchanged{meta: slim.MetaOf(held)}
	}
	return obj
}
