// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package health

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"syscall"
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
	paths := router{
		"/status": getOnly(func(w http.ResponseWriter, _ *http.Request) { writeJSON(w, r.screen()) }),
		"/health": getOnly(func(w http.ResponseWriter, _ *http.Request) { writeJSON(w, r.Health.Snapshot()) }),
		"/graph":  getOnly(func(w http.ResponseWriter, _ *http.Request) { writeJSON(w, r.Graph()) }),
	}
	for _, page := range r.Pages {
		paths[page.Path] = getOnly(page.Serve)
	}
	return newServer("socket", paths, log, h, func() (net.Listener, error) { return listenUnix(c.OperatorSockPath) })
}

// listenUnix listens at a socket that only this user may open.
func listenUnix(path string) (net.Listener, error) {
	if err := clearSocket(path); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, fmt.Errorf("making the folder of the socket: %w", err)
	}
	// The file never exists with more rights, not even for a moment: Linux takes
	// them from the socket.
	ours := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error {
		return c.Control(func(fd uintptr) { _ = syscall.Fchmod(int(fd), 0o600) })
	}}
	l, err := ours.Listen(context.Background(), "unix", path)
	if err != nil {
		return nil, err
	}
	if err := os.Chmod(path, 0o600); err != nil { // elsewhere than on Linux
		l.Close()
		return nil, err
	}
	return l, nil
}

// clearSocket makes room at a path. A socket that a dead process left behind is
// removed; that of a living one, or what is no socket, is not.
func clearSocket(path string) error {
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return fmt.Errorf("looking for a stale socket: %w", err)
	case info.Mode().Type() != fs.ModeSocket:
		return fmt.Errorf("%s is there and no socket; give the operator another path with --operator-sock-path", path)
	}
	conn, err := net.DialTimeout("unix", path, time.Second)
	switch {
	case err == nil:
		conn.Close()
		return fmt.Errorf("socket %s is in use by another operator; give this one its own with --operator-sock-path", path)
	case !errors.Is(err, syscall.ECONNREFUSED) && !errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("finding out whether socket %s is stale: %w", path, err)
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("removing a stale socket: %w", err)
	}
	return nil
}
