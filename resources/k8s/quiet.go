// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package k8s

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"

	"k8s.io/klog/v2"
)

// quietLibraries sends what Kubernetes' libraries log by themselves to debug:
// what matters of it comes back to us as errors, and is reported where it is
// handled. Their logger is one per process, and may be set only before anybody
// logs; of several operators the last to start gets what they say.
func quietLibraries(log *slog.Logger) {
	libraries.next.Store(&debugOnly{log.Handler()})
	libraries.once.Do(func() { klog.SetSlogLogger(slog.New(toLatest{})) })
}

var libraries struct {
	once sync.Once
	next atomic.Pointer[debugOnly]
}

// toLatest hands to the operator that started last.
type toLatest struct{}

func (toLatest) Enabled(ctx context.Context, l slog.Level) bool {
	return libraries.next.Load().Enabled(ctx, l)
}

func (toLatest) Handle(ctx context.Context, r slog.Record) error {
	return libraries.next.Load().Handle(ctx, r)
}

func (toLatest) WithAttrs(attrs []slog.Attr) slog.Handler {
	return libraries.next.Load().WithAttrs(attrs)
}
func (toLatest) WithGroup(name string) slog.Handler { return libraries.next.Load().WithGroup(name) }

// debugOnly makes a debug line of every line.
type debugOnly struct{ next slog.Handler }

func (d debugOnly) Enabled(ctx context.Context, _ slog.Level) bool {
	return d.next.Enabled(ctx, slog.LevelDebug)
}

func (d debugOnly) Handle(ctx context.Context, r slog.Record) error {
	r.Level = slog.LevelDebug
	return d.next.Handle(ctx, r)
}

func (d debugOnly) WithAttrs(attrs []slog.Attr) slog.Handler {
	return debugOnly{d.next.WithAttrs(attrs)}
}
func (d debugOnly) WithGroup(name string) slog.Handler { return debugOnly{d.next.WithGroup(name)} }
