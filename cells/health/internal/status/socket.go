// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package status

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

	"github.com/skep-operator/skep/cells/health/internal/httpserver"
	"github.com/skep-operator/skep/runtime/command"
	"github.com/skep-operator/skep/runtime/health"
	"github.com/skep-operator/skep/runtime/lifecycle"
)

// Config is the options of the local socket.
type Config struct {
	OperatorSockPath string `flag:"operator-sock-path" usage:"Unix socket for the status command; if empty, none"`
}

// NewSocket returns the server of the local socket, nil if it is disabled. Its client is the status command.
func NewSocket(c Config, r *Report, log *slog.Logger, h health.Reporter) lifecycle.Hook {
	if c.OperatorSockPath == "" {
		return nil
	}
	paths := httpserver.Router{
		"/status": httpserver.GetOnly(func(w http.ResponseWriter, _ *http.Request) { httpserver.WriteJSON(w, r.screen()) }),
		"/health": httpserver.GetOnly(func(w http.ResponseWriter, _ *http.Request) { httpserver.WriteJSON(w, r.Health.Snapshot()) }),
		"/graph":  httpserver.GetOnly(func(w http.ResponseWriter, _ *http.Request) { httpserver.WriteJSON(w, r.Graph()) }),
	}
	for _, page := range r.Pages {
		paths[page.Path] = httpserver.GetOnly(page.Serve)
	}
	return httpserver.New("socket", httpserver.Lasting, paths, log, h, func() (net.Listener, error) { return listenLocal(c.OperatorSockPath) })
}

// listenLocal listens at the path of the socket, or at the next path that commands try, if it is not writable.
func listenLocal(path string) (net.Listener, error) {
	var errs []error
	for _, candidate := range command.SocketPaths(path) {
		l, err := listenUnix(candidate)
		if err == nil {
			return l, nil
		}
		errs = append(errs, err)
		if !errors.Is(err, fs.ErrPermission) && !errors.Is(err, syscall.EROFS) {
			break
		}
	}
	return nil, errors.Join(errs...)
}

// listenUnix listens at a socket that only this user may open.
func listenUnix(path string) (net.Listener, error) {
	if err := clearSocket(path); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, fmt.Errorf("creating the directory of the socket: %w", err)
	}
	// The file never has a wider mode: Linux copies it from the socket.
	private := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error {
		return c.Control(func(fd uintptr) { _ = syscall.Fchmod(int(fd), 0o600) })
	}}
	l, err := private.Listen(context.Background(), "unix", path)
	if err != nil {
		return nil, err
	}
	if err := os.Chmod(path, 0o600); err != nil { // not on Linux
		l.Close()
		return nil, err
	}
	return l, nil
}

// clearSocket removes the socket of a dead process. It keeps that of a running one, and other files.
func clearSocket(path string) error {
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return fmt.Errorf("checking for a stale socket: %w", err)
	case info.Mode().Type() != fs.ModeSocket:
		return fmt.Errorf("%s exists and is no socket; give the operator another path with --operator-sock-path", path)
	}
	conn, err := net.DialTimeout("unix", path, time.Second)
	switch {
	case err == nil:
		conn.Close()
		return fmt.Errorf("socket %s is in use by another operator; give this one its own with --operator-sock-path", path)
	case !errors.Is(err, syscall.ECONNREFUSED) && !errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("checking whether socket %s is stale: %w", path, err)
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("removing a stale socket: %w", err)
	}
	return nil
}
