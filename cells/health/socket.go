// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package health

import (
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/skep-operator/skep/runtime/health"
	"github.com/skep-operator/skep/runtime/lifecycle"
)

// newSocket serves people on this machine who may act as the operator's user:
// the status command is its client.
func newSocket(c Config, r *report, log *slog.Logger, h health.Reporter) lifecycle.Hook {
	if c.OperatorSockPath == "" {
		return nil
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /status", func(w http.ResponseWriter, _ *http.Request) { writeJSON(w, r.status()) })
	mux.HandleFunc("GET /health", func(w http.ResponseWriter, _ *http.Request) { writeJSON(w, r.Health.Snapshot()) })
	mux.HandleFunc("GET /graph", func(w http.ResponseWriter, _ *http.Request) { writeJSON(w, r.Graph()) })
	return newServer("socket", mux, log, h, func() (net.Listener, error) { return listenUnix(c.OperatorSockPath) })
}

// listenUnix listens at a socket that only this user may open. A socket that a
// dead process left behind is replaced; that of a living one is not.
func listenUnix(path string) (net.Listener, error) {
	if conn, err := net.DialTimeout("unix", path, time.Second); err == nil {
		conn.Close()
		return nil, fmt.Errorf("socket %s is in use by another operator; give this one its own with --operator-sock-path", path)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, fmt.Errorf("making the folder of the socket: %w", err)
	}
	if err := os.Remove(path); err != nil && !os.IsNotExist(err) {
		return nil, fmt.Errorf("removing a stale socket: %w", err)
	}
	l, err := net.Listen("unix", path)
	if err != nil {
		return nil, err
	}
	if err := os.Chmod(path, 0o600); err != nil {
		l.Close()
		return nil, err
	}
	return l, nil
}
