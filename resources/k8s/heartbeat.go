// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package k8s

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"
)

// heartbeat probes the API server when nothing was heard from it for a while,
// and has all connections made anew when the probe fails: one that went dead
// silently would otherwise hold its requests for many minutes.
type heartbeat struct {
	transport *guardedTransport
	timeout   time.Duration
}

// beat is one look.
func (h *heartbeat) beat(ctx context.Context) error {
	if h.transport.reads.quiet() < h.timeout {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, h.timeout)
	defer cancel()
	if err := h.transport.healthz(ctx); err != nil {
		h.transport.servers.reconnect()
		return fmt.Errorf("nothing good from the API server for %s, reconnecting: %w", h.transport.reads.quiet().Round(time.Second), err)
	}
	return nil
}

// healthz asks the API server whether it is there, and takes us for who we are.
// Being told to slow down is a sign of life.
func (d *guardedTransport) healthz(ctx context.Context) error {
	server := d.servers.url()
	_, status, err := d.get(ctx, "/healthz")
	if err == nil && status != http.StatusOK && status != http.StatusTooManyRequests {
		err = fmt.Errorf("GET /healthz answered %d %s", status, http.StatusText(status))
	}
	if err == nil {
		return nil
	}
	if !errors.Is(ctx.Err(), context.Canceled) {
		d.servers.failed(server)
	}
	if expired := d.dialer.expired(time.Now()); expired != nil {
		err = fmt.Errorf("%w (%w)", expired, err)
	}
	return fmt.Errorf("API server %s: %w", server, err)
}

// get reads a path that is no resource, past the rate limit.
func (d *guardedTransport) get(ctx context.Context, path string) (body []byte, status int, err error) {
	return d.getUpTo(ctx, path, 1<<20)
}

// getUpTo reads at most so many bytes.
func (d *guardedTransport) getUpTo(ctx context.Context, path string, most int64) (body []byte, status int, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, d.servers.url().JoinPath(path).String(), nil)
	if err != nil {
		return nil, 0, err
	}
	req.Header.Set("User-Agent", d.agent+" (k8s)")
	resp, err := d.reads.RoundTrip(req)
	if err != nil {
		return nil, 0, err
	}
	defer resp.Body.Close()
	body, err = io.ReadAll(io.LimitReader(resp.Body, most))
	return body, resp.StatusCode, err
}
