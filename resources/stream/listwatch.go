// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package stream

import (
	"context"
	"errors"
	"fmt"
	"io"
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
	"k8s.io/utils/ptr"

	"github.com/skep-operator/skep/resources/plan"
)

// listerWatcher makes the requests of a stream and decodes the answers as they
// arrive: no list is ever in memory as a whole, no full object at all.
type listerWatcher[T any] struct {
	*Stream[T]
	changes *changes[T]
	pace    *pace
	reading sync.WaitGroup // lists and watches that are being read
	since   atomic.Pointer[time.Time]

	refreshes refreshes
	confirms  confirms
	refused   atomic.Pointer[error] // of the last request for initial events
	doubted   atomic.Bool           // the server may have gone back since it was seen
}

var _ cache.ListerWatcherWithContext = (*listerWatcher[struct{}])(nil)

func newListerWatcher[T any](s *Stream[T]) *listerWatcher[T] {
	return &listerWatcher[T]{Stream: s, changes: newChanges[T](s.conditions), pace: newPace(s.timing)}
}

// List implements cache.ListerWatcher, which the Reflector does not call.
func (lw *listerWatcher[T]) List(opts metav1.ListOptions) (runtime.Object, error) {
	return lw.ListWithContext(context.Background(), opts)
}

// Watch implements cache.ListerWatcher, which the Reflector does not call.
func (lw *listerWatcher[T]) Watch(opts metav1.ListOptions) (watch.Interface, error) {
	return lw.WatchWithContext(context.Background(), opts)
}

// ListWithContext implements cache.ListerWatcherWithContext. The Reflector
// falls back to it when a request for initial events fails for whatever reason;
// where a list would fail for the same reason the server is spared the attempt.
func (lw *listerWatcher[T]) ListWithContext(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if err := lw.refused.Swap(nil); err != nil {
		return nil, *err
	}
	lw.reading.Add(1)
	defer lw.reading.Done()
	opts.ResourceVersion = lw.refreshes.asOf(opts.ResourceVersion)
	body, err := lw.request(ctx, opts)
	if err != nil {
		return nil, err
	}
	defer body.Close()
	body.limit(lw.timing.silence)
	list := &internalversion.List{}
	dec := lw.newDecoder()
	list.ListMeta, err = dec.list(body, func(obj runtime.Object) { list.Items = append(list.Items, lw.known(obj)) })
	if err == nil && list.ResourceVersion == "" {
		err = errors.New("list has no resourceVersion")
	}
	if err != nil {
		return nil, lw.failed("list", body.why(err))
	}
	lw.pace.read()
	return list, nil
}

// WatchWithContext implements cache.ListerWatcherWithContext.
func (lw *listerWatcher[T]) WatchWithContext(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
	opts.Watch = true
	w := &watcher[T]{listerWatcher: lw, opts: opts, initial: opts.SendInitialEvents != nil && *opts.SendInitialEvents}
	w.ctx, w.cancel = context.WithCancel(ctx)
	if w.initial {
		w.opts.ResourceVersion = lw.refreshes.asOf(opts.ResourceVersion)
	}
	body, err := w.open()
	if err != nil {
		w.cancel()
		return nil, w.explain(err)
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
func (lw *listerWatcher[T]) request(ctx context.Context, opts metav1.ListOptions) (*body, error) {
	return lw.requestOf(ctx, opts, lw.kind.fields)
}

// requestOf is request for the objects that a field selector matches.
func (lw *listerWatcher[T]) requestOf(ctx context.Context, opts metav1.ListOptions, fields string) (*body, error) {
	verb := "list"
	if opts.Watch {
		verb = "watch"
	}
	opts.LabelSelector, opts.FieldSelector = lw.kind.labels, fields
	if err := lw.pace.await(ctx); err != nil {
		return nil, err
	}
	client, err := lw.source.connect(ctx)
	if err != nil {
		return nil, lw.failed(verb, err)
	}
	b := newBody(plan.AsIs(ctx))
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
		return nil, lw.failed(verb, b.why(err))
	}
	lw.pace.answered()
	lw.conditions.set(conditionConnection, nil)
	return b, nil
}

// failed reports why a request or its answer came to nothing, and makes the next
// one wait.
func (lw *listerWatcher[T]) failed(verb string, err error) error {
	if lw.report(verb, err) {
		lw.pace.fail(err)
	}
	return err
}

// report says what went wrong, if anything did.
func (lw *listerWatcher[T]) report(verb string, err error) (wrong bool) {
	switch {
	case errors.Is(err, context.Canceled), expired(err), unsupported(err), apierrors.IsNotFound(err):
		return false // nothing is wrong, or awaitResource says it
	case apierrors.IsForbidden(err):
		lw.conditions.set(conditionConnection, fmt.Errorf("not allowed to %s %s, grant it in the operator's role: %w", verb, lw.kind, err))
	default:
		lw.conditions.set(conditionConnection, fmt.Errorf("cannot %s %s, retrying: %w", verb, lw.kind, err))
	}
	return true
}

// expired reports whether the server wants a fresh start, at another revision.
func expired(err error) bool {
	return apierrors.IsResourceExpired(err) || apierrors.IsGone(err) ||
		apierrors.HasStatusCause(err, metav1.CauseTypeResourceVersionTooLarge)
}

// unsupported reports whether the server does not stream initial events.
func unsupported(err error) bool { return apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) }

func (lw *listerWatcher[T]) path() []string {
	gvr := lw.kind.gvr
	path := []string{"/apis", gvr.Group, gvr.Version}
	if gvr.Group == "" {
		path = []string{"/api", gvr.Version}
	}
	if lw.kind.namespace != "" {
		path = append(path, "namespaces", lw.kind.namespace)
	}
	return append(path, gvr.Resource)
}

// accept returns the media types that the codec reads, best first.
func (lw *listerWatcher[T]) accept(watch bool) string {
	types := []string{runtime.ContentTypeJSON}
	if lw.codec.SpeaksProtobuf() {
		types = []string{runtime.ContentTypeProtobuf, runtime.ContentTypeJSON}
	}
	if lw.codec.MetadataOnly() {
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

// known returns a word in place of an object that the stream keeps already, so
// that a relist does not need the memory twice.
func (lw *listerWatcher[T]) known(obj runtime.Object) runtime.Object {
	fresh, ok := obj.(*object[T])
	if !ok {
		return obj
	}
	meta := fresh.meta()
	lw.changes.mu.Lock()
	defer lw.changes.mu.Unlock()
	if n, _ := lw.changes.nodes.Get(meta.Key()); n != nil && !n.deleted && n.meta().ResourceVersion == meta.ResourceVersion {
		return &unchanged{meta: n.meta()}
	}
	return obj
}

// watcher is one watch as the Reflector sees it. It outlives connections that
// end before they brought an event: the Reflector would list again.
type watcher[T any] struct {
	*listerWatcher[T]
	ctx     context.Context
	cancel  context.CancelFunc
	opts    metav1.ListOptions
	initial bool // the end of the initial events is still to come
	events  chan watch.Event
}

// Stop implements watch.Interface.
func (w *watcher[T]) Stop() { w.cancel() }

// ResultChan implements watch.Interface.
func (w *watcher[T]) ResultChan() <-chan watch.Event { return w.events }

// open connects. A watch that only goes on is tried until it works or the server
// says that it never will: a Reflector that hears of an error lists again.
func (w *watcher[T]) open() (*body, error) {
	for {
		if err := w.wentBack(); err != nil {
			return nil, err
		}
		opts, short := w.opts, !w.initial && w.confirms.waiting()
		if short {
			opts.TimeoutSeconds = ptr.To(confirmWatch)
		}
		body, err := w.request(w.ctx, opts)
		switch {
		case err == nil:
			body.limit(w.timing.idle)
			if w.initial {
				body.limit(w.timing.silence)
			}
			if opts.TimeoutSeconds != nil {
				// The server ends the watch by then. If the end gets lost:
				body.expire(time.Duration(*opts.TimeoutSeconds)*time.Second + w.timing.lifetime)
			}
			if !w.initial {
				w.confirms.opened(body, short)
			}
			return body, nil
		case w.ctx.Err() != nil, w.initial, final(err):
			return nil, err
		case !apierrors.IsTooManyRequests(err):
			w.doubted.Store(true)
		}
	}
}

// final reports whether the same request would be refused again.
func final(err error) bool {
	return expired(err) || unsupported(err) ||
		apierrors.IsNotFound(err) || apierrors.IsForbidden(err) || apierrors.IsMethodNotSupported(err)
}

// explain prepares an error for the Reflector. Of a request for initial events
// it may know only two: those that want another revision, and those after which
// a list is worth a try. For some others it would sleep where it cannot be
// stopped; they are kept for ListWithContext.
func (w *watcher[T]) explain(err error) error {
	if !w.initial || expired(err) || unsupported(err) {
		return err
	}
	w.refused.Store(&err)
	return errors.New(err.Error())
}

// run reads connections until there is something that the Reflector has to know.
func (w *watcher[T]) run(body *body) {
	defer w.reading.Done()
	defer w.cancel()
	defer close(w.events)
	for {
		now := time.Now()
		w.since.Store(&now)
		n, err := w.read(body)
		err = body.why(err)
		body.Close()
		w.since.CompareAndSwap(&now, nil) // another watch may have begun
		if w.ctx.Err() != nil {
			return
		}
		asked := w.confirms.ended(body)
		early := time.Since(now) < w.timing.settled && !asked
		if !w.initial {
			w.pace.read()
		}
		if silent := (errSilent{}); errors.As(err, &silent) {
			w.doubted.Store(true)
		}
		switch {
		case early && w.initial:
			w.pace.fail(err)
		case early:
			w.pace.endedEarly()
		}
		switch {
		case asked, errors.Is(err, io.EOF) && !w.initial:
		case errors.Is(err, errReported):
			return
		case w.initial:
			_ = w.failed("watch", err)
		case w.report("watch", err):
			w.pace.endedEarly()
		}
		if w.initial {
			w.fail(w.cut(err))
			return
		}
		if n > 0 {
			return
		}
		if body, err = w.open(); err != nil {
			w.fail(err)
			return
		}
	}
}

// cut says why initial events ended before their end. A server that was silent
// may not know of initial events at all, so that a list is worth a try.
func (w *watcher[T]) cut(err error) error {
	if silent := (errSilent{}); !errors.As(err, &silent) {
		err := fmt.Errorf("watch ended before the end of the initial events: %w", err)
		w.refused.Store(&err)
	}
	return err
}

// fail tells the Reflector of an error.
func (w *watcher[T]) fail(err error) {
	status := apierrors.NewGenericServerResponse(0, "watch", w.kind.gvr.GroupResource(), "", err.Error(), 0, true).Status()
	if s := apierrors.APIStatus(nil); errors.As(err, &s) {
		status = s.Status()
	}
	w.send(watch.Event{Type: watch.Error, Object: &status})
}

func (w *watcher[T]) send(e watch.Event) bool {
	select {
	case w.events <- e:
		return true
	case <-w.ctx.Done():
		return false
	}
}

// errReported is the end of a watch of which the server has said the reason.
var errReported = errors.New("the server has ended the watch with an error")

// read passes on the events of one connection. It returns their number, without
// the initial ones, and why there are no more.
func (w *watcher[T]) read(body *body) (n int, err error) {
	dec := w.newDecoder()
	frames, err := newFrames(body)
	if err != nil {
		return 0, err
	}
	for {
		typ, raw, err := frames.next()
		if err != nil {
			return n, err
		}
		e, err := w.event(dec, frames, typ, raw)
		if err != nil {
			return n, err
		}
		if !w.send(e) {
			return n, w.ctx.Err()
		}
		n++
		switch {
		case e.Type == watch.Error:
			return n, errReported
		case w.initial && e.Type == watch.Bookmark && e.Object.(*bookmark).end:
			w.goOn(e.Object.(*bookmark).revision)
			body.limit(w.timing.idle)
			w.confirms.opened(body, false)
			n = 0
		}
	}
}

// goOn makes a request for initial events, which have come, one that goes on
// from there.
func (w *watcher[T]) goOn(revision string) {
	w.initial = false
	w.opts.SendInitialEvents, w.opts.ResourceVersionMatch, w.opts.ResourceVersion = nil, "", revision
}

// event decodes what a frame holds.
func (w *watcher[T]) event(dec *decoder[T], f frames, typ string, raw []byte) (watch.Event, error) {
	e := watch.Event{Type: watch.EventType(typ)}
	var err error
	switch e.Type {
	case watch.Added, watch.Modified:
		e.Object = dec.object(f.encoding(), raw)
		if w.initial {
			e.Object = w.known(e.Object)
		}
	case watch.Deleted:
		e.Object = dec.name(f.encoding(), raw, nil)
	case watch.Bookmark:
		e.Object, err = dec.bookmark(f.encoding(), raw)
	case watch.Error:
		var status *metav1.Status
		if status, err = decodeStatus(f.encoding(), raw); err == nil {
			e.Object, err = w.problem(status)
		}
	default:
		err = fmt.Errorf("unknown watch event %q", typ)
	}
	return e, err
}

// problem decides about an error that the server puts into a watch: the Reflector
// hears of those after which it has to begin anew; the others end the connection.
func (w *watcher[T]) problem(status *metav1.Status) (runtime.Object, error) {
	cause := apierrors.FromObject(status)
	if !w.initial && !final(cause) {
		return nil, cause
	}
	_ = w.failed("watch", cause)
	if w.explain(cause) != cause { // the Reflector would sleep
		status.Reason, status.Code = metav1.StatusReasonUnknown, 0
	}
	return status, nil
}
