// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package reflector

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/ptr"
)

// watcher is one watch for the Reflector. It outlives connections that end before
// their first event: the Reflector would list again.
type watcher[P any] struct {
	*listerWatcher[P]
	ctx     context.Context
	cancel  context.CancelFunc
	opts    metav1.ListOptions
	initial bool // the end of the initial events is still to come
	events  chan watch.Event

	// Of the connection that is being read:
	aliveTimer *time.Timer
	alive      atomic.Bool // something was read, or it has existed for aliveAfter
}

const (
	// aliveAfter is the age at which a connection without events is alive.
	aliveAfter = time.Second
	// maxShortConnections is how often in a row a watch may end before it is alive.
	maxShortConnections = 3
)

// startConnection begins to read a connection.
func (w *watcher[P]) startConnection() {
	w.alive.Store(false)
	initial := w.initial // which changes while the timer runs
	w.aliveTimer = time.AfterFunc(aliveAfter, func() { w.markAlive(initial) })
}

// markAlive records that the connection is alive. initial is whether initial events are read.
func (w *watcher[P]) markAlive(initial bool) {
	if !w.alive.Swap(true) && !initial {
		w.markConnected()
	}
}

// endConnection ends the reading of a connection. It reports whether that was alive.
func (w *watcher[P]) endConnection() (alive bool) {
	w.aliveTimer.Stop()
	return w.alive.Load()
}

// Stop implements watch.Interface.
func (w *watcher[P]) Stop() { w.cancel() }

// ResultChan implements watch.Interface.
func (w *watcher[P]) ResultChan() <-chan watch.Event { return w.events }

// open connects. A watch without initial events is retried until it works or its
// error is permanent: after an error the Reflector lists again.
func (w *watcher[P]) open() (*body, error) {
	for {
		if err := w.checkRollback(); err != nil {
			return nil, err
		}
		opts, short := w.opts, !w.initial && w.progress.waiting()
		if short {
			opts.TimeoutSeconds = ptr.To[int64](progressWatch)
		}
		body, err := w.request(w.ctx, opts)
		switch {
		case err == nil:
			body.limitIdle(w.timing.idle)
			if w.initial {
				body.limitIdle(w.timing.silence)
			}
			if opts.TimeoutSeconds != nil {
				// The server ends the watch by then. If the end gets lost:
				body.limitLifetime(time.Duration(*opts.TimeoutSeconds)*time.Second + w.timing.lifetime)
			}
			if !w.initial {
				w.progress.opened(body, short)
			}
			return body, nil
		case w.ctx.Err() != nil, w.initial, isPermanent(err):
			return nil, err
		case !apierrors.IsTooManyRequests(err):
			w.suspectRollback.Store(true)
		}
	}
}

// isPermanent reports whether the same request would be refused again.
func isPermanent(err error) bool {
	return isExpired(err) || isUnsupported(err) ||
		apierrors.IsNotFound(err) || apierrors.IsForbidden(err) || apierrors.IsMethodNotSupported(err)
}

// forReflector prepares an error for the Reflector. Of a request for initial events
// it gets only two kinds: those that require another revision, and those after which
// a list may work. After some others it would sleep where it cannot be stopped; they
// are kept for ListWithContext.
func (w *watcher[P]) forReflector(err error) error {
	if !w.initial || isExpired(err) || isUnsupported(err) {
		return err
	}
	w.refused.Store(&err)
	return errors.New(err.Error())
}

// run reads connections until there is an event or an error for the Reflector.
func (w *watcher[P]) run(body *body) {
	defer w.reading.Done()
	defer w.cancel()
	defer close(w.events)
	atOnce := 0 // connections in a row that ended at once, with nothing read
	for {
		now := time.Now()
		w.since.Store(&now)
		w.startConnection()
		n, err := w.read(body)
		alive := w.endConnection()
		err = body.cause(err)
		body.Close()
		w.since.CompareAndSwap(&now, nil) // another watch may have begun
		if w.ctx.Err() != nil {
			return
		}
		asked := w.progress.ended(body)
		early := time.Since(now) < w.timing.stableAfter && !asked
		atOnce++
		if alive || asked {
			atOnce = 0
		}
		if errors.Is(err, io.EOF) && atOnce > maxShortConnections {
			err = errors.New("the watch ends at once, without an event")
		}
		if silent := (errSilent{}); errors.As(err, &silent) {
			w.suspectRollback.Store(true)
		}
		switch {
		case early && w.initial:
			w.backoff.recordFailure(err)
		case early:
			w.backoff.endedEarly()
		}
		switch {
		case asked, errors.Is(err, io.EOF) && !w.initial:
		case errors.Is(err, errReported):
			return
		case w.initial || atOnce > 0:
			_ = w.recordFailure("watch", err)
		case w.reportError("watch", err):
			w.backoff.endedEarly()
		}
		if w.initial {
			w.sendError(w.initialEventsError(err))
			return
		}
		if n > 0 {
			return
		}
		if body, err = w.open(); err != nil {
			w.sendError(err)
			return
		}
	}
}

// initialEventsError is the error of initial events that ended early. A server that
// was silent may not support them, so that a list may work.
func (w *watcher[P]) initialEventsError(err error) error {
	if silent := (errSilent{}); !errors.As(err, &silent) {
		err := fmt.Errorf("watch ended before the end of the initial events: %w", err)
		w.refused.Store(&err)
	}
	return err
}

// sendError passes an error to the Reflector.
func (w *watcher[P]) sendError(err error) {
	status := apierrors.NewGenericServerResponse(0, "watch", w.Resource.GroupResource(), "", err.Error(), 0, true).Status()
	if s := apierrors.APIStatus(nil); errors.As(err, &s) {
		status = s.Status()
	}
	w.send(watch.Event{Type: watch.Error, Object: &status})
}

func (w *watcher[P]) send(e watch.Event) bool {
	select {
	case w.events <- e:
		return true
	case <-w.ctx.Done():
		return false
	}
}

// errReported is the end of a watch whose error event was passed on.
var errReported = errors.New("the server has ended the watch with an error")

// read passes on the events of one connection. It returns their number, without
// the initial ones, and the error that ended them.
func (w *watcher[P]) read(body *body) (n int, err error) {
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
		if mark, ok := e.Object.(*bookmark); ok && w.initial && mark.end {
			w.Memory.listed(&w.large)
		}
		if e.Type != watch.Error {
			w.markAlive(w.initial)
		}
		if !w.send(e) {
			return n, w.ctx.Err()
		}
		n++
		switch {
		case e.Type == watch.Error:
			return n, errReported
		case w.initial && e.Type == watch.Bookmark && e.Object.(*bookmark).end:
			w.continueFrom(e.Object.(*bookmark).revision)
			w.markConnected()
			body.limitIdle(w.timing.idle)
			w.progress.opened(body, false)
			n = 0
		}
	}
}

// continueFrom turns a request for initial events, which have come, into one that
// continues from a revision.
func (w *watcher[P]) continueFrom(revision string) {
	w.initial = false
	w.opts.SendInitialEvents, w.opts.ResourceVersionMatch, w.opts.ResourceVersion = nil, "", revision
}

// event decodes what a frame holds.
func (w *watcher[P]) event(dec *decoder[P], f frames, typ string, raw []byte) (watch.Event, error) {
	e := watch.Event{Type: watch.EventType(typ)}
	var err error
	switch e.Type {
	case watch.Added, watch.Modified:
		e.Object = dec.object(f.encoding(), raw)
		if w.initial {
			e.Object = w.dedupe(e.Object)
		}
	case watch.Deleted:
		gone := dec.metadata(f.encoding(), raw, nil)
		w.Memory.remove(&w.large, gone.meta.Key())
		e.Object = gone
	case watch.Bookmark:
		e.Object, err = dec.bookmark(f.encoding(), raw)
	case watch.Error:
		var status *metav1.Status
		if status, err = decodeStatus(f.encoding(), raw); err == nil {
			e.Object, err = w.watchError(status)
		}
	default:
		err = fmt.Errorf("unknown watch event %q", typ)
	}
	if err == nil && withoutRevision[P](e.Object) {
		err = fmt.Errorf("a watch event %s without a resourceVersion", typ)
	}
	return e, err
}

// withoutRevision reports whether an event would have the watch continue from no known revision: what was deleted
// before would never be seen.
func withoutRevision[P any](obj runtime.Object) bool {
	switch obj := obj.(type) {
	case item[P]:
		return obj.meta().ResourceVersion == 0
	case *metadataOnly:
		return obj.meta.Name != "" && obj.meta.ResourceVersion == 0 // without a name there is a relist
	case *bookmark:
		return obj.revision == ""
	}
	return false
}

// watchError handles an error event of a watch: the Reflector gets those after which
// it has to list; the others end the connection.
func (w *watcher[P]) watchError(status *metav1.Status) (runtime.Object, error) {
	cause := apierrors.FromObject(status)
	if !w.initial && !isPermanent(cause) {
		return nil, cause
	}
	_ = w.recordFailure("watch", cause)
	if w.forReflector(cause) != cause { // the Reflector would sleep
		status.Reason, status.Code = metav1.StatusReasonUnknown, 0
	}
	return status, nil
}
