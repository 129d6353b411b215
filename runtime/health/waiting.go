// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package health

import (
	"context"
	"strings"
	"sync"
	"time"
)

// patience is how long a part may wait for what it needs without being degraded
// by it: all wait for a moment when they start.
const patience = 5 * time.Second

type reporterKey struct{}

// NewContext returns a context of the part that r reports for. Every job has one.
func NewContext(ctx context.Context, r Reporter) context.Context {
	return context.WithValue(ctx, reporterKey{}, r)
}

// Waiting is for what keeps its callers waiting, such as a stream or a
// connection: from now until over is called, the part that ctx is of waits for
// the thing of this name, up to its first dot, and why says what is missing. A
// wait of more than five seconds degrades the part. Without a reporter in ctx
// nothing is reported. over may be called more than once; both may be called
// from any goroutine, and with locks held.
func Waiting(ctx context.Context, name, why string) (over func()) {
	r, ok := ctx.Value(reporterKey{}).(Reporter)
	if !ok {
		return func() {}
	}
	name, _, _ = strings.Cut(name, ".") // a dot would be a part of a part
	w := &wait{part: r.Part("waits-for-" + name), why: why}
	w.timer = time.AfterFunc(patience, w.tooLong)
	return w.over
}

// wait is a wait that is degraded or not yet.
type wait struct {
	part  Reporter
	why   string
	timer *time.Timer

	mu       sync.Mutex
	ended    bool
	reported bool
}

func (w *wait) tooLong() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.ended {
		w.part.Degraded(w.why, nil)
		w.reported = true
	}
}

func (w *wait) over() {
	w.timer.Stop()
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.reported && !w.ended {
		w.part.Gone()
	}
	w.ended = true
}
