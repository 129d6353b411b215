// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package k8s

import (
	"context"
	"log/slog"

	"k8s.io/klog/v2"
)

// quietLibraries sends what Kubernetes' libraries log by themselves to debug:
// what matters of it comes back to us as errors, and is reported where it is
// handled. Their logger is one per process; of several operators the last to
// start gets it.
func quietLibraries(log *slog.Logger) { klog.SetSlogLogger(slog.New(debugOnly{log.Handler()})) }

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
