// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package reflector

import (
	"context"
	"fmt"
	"io"
	"sync/atomic"
	"time"
)

// body is the body of an answer whose reads end: a read from a half-open connection
// never does. Over HTTP/2 client-go's transport detects these by pings; this works
// with any transport.
type body struct {
	io.ReadCloser
	ctx    context.Context
	cancel context.CancelCauseFunc

	reads   atomic.Uint64 // with data
	reading atomic.Bool
	checked uint64 // reads at the last check; of the timer's goroutine
	busy    bool   // the reader was at work at the last check; of the same
	silence atomic.Int64
	timer   *time.Timer
	end     *time.Timer
}

func newBody(ctx context.Context) *body {
	b := &body{}
	b.ctx, b.cancel = context.WithCancelCause(ctx)
	return b
}

// errSilent is the error of a connection on which the server sends nothing.
type errSilent struct {
	what  string
	limit time.Duration
}

func (e errSilent) Error() string { return fmt.Sprintf("%s from the server for %v", e.what, e.limit) }

// limitIdle ends the body if a read has no data for so long, or up to twice as long: a
// check per period is cheaper than a timer per read. Between two reads the reader may be at
// work on an object for longer: that is no silence of the server, and to list all again
// would have it meet the object again.
func (b *body) limitIdle(d time.Duration) {
	b.silence.Store(int64(d))
	if b.timer == nil {
		b.timer = time.AfterFunc(d, b.checkIdle)
		return
	}
	b.timer.Reset(d)
}

func (b *body) checkIdle() {
	limit := time.Duration(b.silence.Load())
	reads := b.reads.Load()
	wasBusy := b.busy
	b.busy = !b.reading.Load()
	if reads == b.checked && !b.busy && !wasBusy {
		b.cancel(errSilent{"nothing", limit})
		return
	}
	b.checked = reads
	b.timer.Reset(limit)
}

// limitLifetime ends the body after d.
func (b *body) limitLifetime(d time.Duration) {
	b.end = time.AfterFunc(d, func() { b.cancel(errSilent{"no end of the watch", d}) })
}

func (b *body) Read(p []byte) (int, error) {
	b.reading.Store(true)
	n, err := b.ReadCloser.Read(p)
	b.reading.Store(false)
	if n > 0 {
		b.reads.Add(1)
	}
	return n, err
}

func (b *body) Close() error {
	for _, t := range []*time.Timer{b.timer, b.end} {
		if t != nil {
			t.Stop()
		}
	}
	b.cancel(nil)
	return b.ReadCloser.Close()
}

// cause returns the reason behind the error of a read, if it was one of ours.
func (b *body) cause(err error) error {
	if silent, ok := context.Cause(b.ctx).(errSilent); ok && err != nil {
		return silent
	}
	return err
}
