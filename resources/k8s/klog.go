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

// quietLibraries logs the messages of Kubernetes' libraries at debug: what matters of them is returned as errors too,
// and reported where these are handled. Their logger is one per process, and can be set only before its first message;
// of several operators the last one started gets the messages.
func quietLibraries(log *slog.Logger) {
	libraries.next.Store(&debugOnly{log.Handler()})
	libraries.once.Do(func() { klog.SetSlogLogger(slog.New(lastOperatorHandler{})) })
}

var libraries struct {
	once sync.Once
	next atomic.Pointer[debugOnly]
}

// lastOperatorHandler hands to the operator that started last.
type lastOperatorHandler struct{}

func (lastOperatorHandler) Enabled(ctx context.Context, l slog.Level) bool {
	return libraries.next.Load().Enabled(ctx, l)
}

func (lastOperatorHandler) Handle(ctx context.Context, r slog.Record) error {
	return libraries.next.Load().Handle(ctx, r)
}

func (lastOperatorHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return libraries.next.Load().WithAttrs(attrs)
}
func (lastOperatorHandler) WithGroup(name string) slog.Handler {
	return libraries.next.Load().WithGroup(name)
}

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
