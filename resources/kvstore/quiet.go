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

// clientDebug is the environment variable of etcd's client that asks for its
// log, from the level that it names.
const clientDebug = "ETCD_CLIENT_DEBUG"

// quietLogger is where etcd's client logs: nowhere, unless the environment asks
// for it. What matters comes back as errors.
func quietLogger(log *slog.Logger) *zap.Logger {
	text, ok := os.LookupEnv(clientDebug)
	if !ok {
		return zap.NewNop()
	}
	level, err := zapcore.ParseLevel(text)
	if err != nil {
		level = zapcore.DebugLevel
	}
	return zap.New(slogCore{level, log})
}

// slogCore writes zap's entries to slog.
type slogCore struct {
	zapcore.LevelEnabler
	log *slog.Logger
}

func (c slogCore) With(fields []zapcore.Field) zapcore.Core {
	return slogCore{c.LevelEnabler, c.log.With(attributes(fields)...)}
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
	c.log.Log(context.Background(), level, "etcd client: "+e.Message, attributes(fields)...)
	return nil
}

func (slogCore) Sync() error { return nil }

func attributes(fields []zapcore.Field) []any {
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
