// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package command

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/skep-operator/skep/runtime/hive"
)

// Endpoint is a path of the HTTP server on the local socket, for commands of a
// running operator, as a value of group "local api". Only the operator's user has
// access.
type Endpoint struct {
	Path  string // /writes
	Serve http.HandlerFunc
}

// socketFlag is the option that names the local socket.
const socketFlag = "operator-sock-path"

// responseTimeout is how long the operator may take to begin its response.
const responseTimeout = 10 * time.Second

// Get sends a GET request to the operator whose socket the options name. Problems
// of other options are printed and do not count. The caller closes the body, which
// lasts as long as the command's context.
func Get(cmd *cobra.Command, h *hive.Hive, path string) (*http.Response, error) {
	if err := h.Configure(cmd.Flags()); err != nil {
		fmt.Fprintln(cmd.ErrOrStderr(), err)
	}
	entry, _ := h.Values().Lookup(socketFlag)
	socket, err := findSocket(entry.Value)
	if err != nil {
		return nil, err
	}
	client := &http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", socket)
		},
		ResponseHeaderTimeout: responseTimeout,
		DisableKeepAlives:     true,
	}}
	req, err := http.NewRequestWithContext(cmd.Context(), http.MethodGet, "http://operator"+path, nil)
	if err != nil {
		return nil, err
	}
	resp, err := client.Do(req)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("no operator is running here: there is no socket %s (--%s)", socket, socketFlag)
	case err != nil:
		return nil, fmt.Errorf("asking the operator at %s: %w", socket, err)
	}
	if resp.StatusCode != http.StatusOK {
		resp.Body.Close()
		return nil, fmt.Errorf("the operator at %s answers %s to %s; is it of another version?", socket, resp.Status, path)
	}
	return resp, nil
}

// SocketPaths are the places of the local socket, in the order in which they are tried:
// where nothing may be written at a path, as on a root that is read-only, it is in a
// folder that every user may write to. /dev/shm is one in every container.
func SocketPaths(path string) []string {
	name := strings.ReplaceAll(strings.Trim(path, "/"), "/", "-")
	return []string{path, filepath.Join(os.TempDir(), name), filepath.Join("/dev/shm", name)}
}

// findSocket returns the place at which an operator listens, the first where none does.
// In a folder that others may write to only a socket of this user, or of root, counts.
func findSocket(path string) (string, error) {
	for i, candidate := range SocketPaths(path) {
		info, err := os.Stat(candidate)
		if err != nil || !listens(candidate) {
			continue
		}
		if owner, ok := info.Sys().(*syscall.Stat_t); i > 0 && ok && owner.Uid != 0 && int(owner.Uid) != os.Getuid() {
			return "", fmt.Errorf("socket %s belongs to user %d, and this command runs as user %d: run it as the user of the operator", candidate, owner.Uid, os.Getuid())
		}
		return candidate, nil
	}
	return path, nil
}

// listens reports whether a process listens on a socket, which a killed process
// leaves behind.
func listens(socket string) bool {
	conn, err := net.DialTimeout("unix", socket, responseTimeout)
	if err == nil {
		conn.Close()
	}
	return err == nil
}

// GetJSON is Get for a response of one JSON value.
func GetJSON(cmd *cobra.Command, h *hive.Hive, path string, into any) error {
	resp, err := Get(cmd, h, path)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if err := json.NewDecoder(resp.Body).Decode(into); err != nil {
		return fmt.Errorf("reading the answer of the running operator: %w", err)
	}
	return nil
}
