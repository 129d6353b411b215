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
	"time"

	"github.com/spf13/cobra"

	"github.com/skep-operator/skep/runtime/hive"
)

// Page is something that a running operator tells its own commands over the
// local socket, as a value of group "local api". Only the operator's user can
// ask.
type Page struct {
	Path  string // /writes
	Serve http.HandlerFunc
}

// socketFlag is the option that names the local socket.
const socketFlag = "operator-sock-path"

// askLimit is how long an operator that lives may take to begin its answer.
const askLimit = 10 * time.Second

// Ask asks the operator whose socket the options name. Other options may be
// wrong: they are the running operator's affair. The caller closes the body,
// which lasts as long as the command's context.
func Ask(cmd *cobra.Command, h *hive.Hive, path string) (*http.Response, error) {
	if err := h.Configure(cmd.Flags()); err != nil {
		fmt.Fprintln(cmd.ErrOrStderr(), err)
	}
	entry, _ := h.Values().Lookup(socketFlag)
	socket := entry.Value
	client := &http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", socket)
		},
		ResponseHeaderTimeout: askLimit,
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

// AskJSON is Ask for an answer that is one JSON value.
func AskJSON(cmd *cobra.Command, h *hive.Hive, path string, into any) error {
	resp, err := Ask(cmd, h, path)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if err := json.NewDecoder(resp.Body).Decode(into); err != nil {
		return fmt.Errorf("reading the answer of the running operator: %w", err)
	}
	return nil
}
