// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package health

import (
	"context"
	"strings"
	"sync"
	"time"
)

// blockedAfter is how long a part may wait for a dependency before it is degraded:
// all wait for a moment when they start.
const blockedAfter = 5 * time.Second

type reporterKey struct{}

// NewContext returns a context of the part that r reports for. Every job has one.
func NewContext(ctx context.Context, r Reporter) context.Context {
	return context.WithValue(ctx, reporterKey{}, r)
}

// ReportBlocked reports that a dependency, such as a stream or a connection, blocks
// the part of ctx, from now until end is called. name is that of the dependency up
// to its first dot, why is what is missing. After five seconds the part is
// degraded. Without a reporter in ctx nothing is reported. end may be called more
// than once; both may be called from any goroutine, and with locks held.
func ReportBlocked(ctx context.Context, name, why string) (end func()) {
	r, ok := ctx.Value(reporterKey{}).(Reporter)
	if !ok {
		return func() {}
	}
	name, _, _ = strings.Cut(name, ".") // a dot would be a part of a part
	w := &blocked{child: r.Child("waits-for-" + name), why: why}
	w.timer = time.AfterFunc(blockedAfter, w.report)
	return w.end
}

// blocked is a wait, degraded or not yet.
type blocked struct {
	child Reporter
	why   string
	timer *time.Timer

	mu       sync.Mutex
	ended    bool
	reported bool
}

func (w *blocked) report() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.ended {
		w.child.Degraded(w.why, nil)
		w.reported = true
	}
}

func (w *blocked) end() {
	w.timer.Stop()
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.reported && !w.ended {
		w.child.Remove()
	}
	w.ended = true
}
