// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package kvstore

import (
	"context"
	"log/slog"
	"os"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// clientDebugVariable is the environment variable of etcd's client that enables its
// log at a level.
const clientDebugVariable = "ETCD_CLIENT_DEBUG"

// zapLogger returns the logger of etcd's client: none, unless the environment enables
// it. The client returns what matters as errors.
func zapLogger(log *slog.Logger) *zap.Logger {
	text, ok := os.LookupEnv(clientDebugVariable)
	if !ok {
		return zap.NewNop()
	}
	level, err := zapcore.ParseLevel(text)
	if err != nil {
		level = zapcore.DebugLevel
	}
	return zap.New(slogCore{level, log})
}

// slogCore is a zap core that writes to slog.
type slogCore struct {
	zapcore.LevelEnabler
	log *slog.Logger
}

func (c slogCore) With(fields []zapcore.Field) zapcore.Core {
	return slogCore{c.LevelEnabler, c.log.With(zapAttrs(fields)...)}
}

func (c slogCore) Check(e zapcore.Entry, checked *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	if c.Enabled(e.Level) {
		return checked.AddCore(e, c)
	}
	return checked
}

func (c slogCore) Write(e zapcore.Entry, fields []zapcore.Field) error {
	level := slog.LevelDebug
	switch e.Level {
	case zapcore.InfoLevel:
		level = slog.LevelInfo
	case zapcore.WarnLevel:
		level = slog.LevelWarn
	case zapcore.ErrorLevel, zapcore.DPanicLevel, zapcore.PanicLevel, zapcore.FatalLevel:
		level = slog.LevelError
	}
	c.log.Log(context.Background(), level, "etcd client: "+e.Message, zapAttrs(fields)...)
	return nil
}

func (slogCore) Sync() error { return nil }

func zapAttrs(fields []zapcore.Field) []any {
	values := zapcore.NewMapObjectEncoder()
	for _, f := range fields {
		f.AddTo(values)
	}
	var attrs []any
	for k, v := range values.Fields {
		attrs = append(attrs, slog.Any(k, v))
	}
	return attrs
}
