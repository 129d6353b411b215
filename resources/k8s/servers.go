// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package k8s

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/client-go/rest"
)

// servers are the API servers, one of which is in use. A server that cannot be
// reached makes way for the next; with a single one this does nothing.
type servers struct {
	log  *slog.Logger
	urls []*url.URL

	mu        sync.Mutex
	current   int
	pools     map[*connPool]struct{}
	succeeded atomic.Int64 // unix nanoseconds of the last answer
}

// connPool is a pool of connections that can be told to start afresh.
type connPool struct {
	mu    sync.Mutex
	conns map[*trackedConn]struct{}
}

type trackedConn struct {
	net.Conn
	pool *connPool
}

func (c *trackedConn) Close() error {
	c.pool.mu.Lock()
	delete(c.pool.conns, c)
	c.pool.mu.Unlock()
	return c.Conn.Close()
}

func newServers(log *slog.Logger, hosts []string, base *rest.Config) (*servers, error) {
	if len(hosts) < 2 || base.Host != hosts[0] {
		hosts = []string{base.Host}
	}
	s := &servers{log: log, pools: map[*connPool]struct{}{}}
	for _, h := range hosts {
		u, _, err := rest.DefaultServerUrlFor(&rest.Config{Host: h, TLSClientConfig: base.TLSClientConfig})
		if err != nil {
			return nil, fmt.Errorf("API server %q: %w", h, err)
		}
		s.urls = append(s.urls, u)
	}
	return s, nil
}

// url is the server in use.
func (s *servers) url() *url.URL {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.urls[s.current]
}

// failed moves on from a server that could not be reached. Several requests
// that fail at the same server move on once.
func (s *servers) failed(u *url.URL) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.urls) > 1 && s.urls[s.current] == u {
		s.current = (s.current + 1) % len(s.urls)
		s.log.Warn("API server cannot be reached, trying the next", "server", u.Host, "next", s.urls[s.current].Host)
	}
}

// track makes connections of a pool known, so that all can be closed at once.
func (s *servers) track(dial func(context.Context, string, string) (net.Conn, error)) func(context.Context, string, string) (net.Conn, error) {
	pool := &connPool{conns: map[*trackedConn]struct{}{}}
	s.mu.Lock()
	s.pools[pool] = struct{}{}
	s.mu.Unlock()
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		inner, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		c := &trackedConn{inner, pool}
		pool.mu.Lock()
		defer pool.mu.Unlock()
		pool.conns[c] = struct{}{}
		return c, nil
	}
}

// reconnect closes all connections; requests dial anew.
func (s *servers) reconnect() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for pool := range s.pools {
		pool.mu.Lock()
		conns := pool.conns
		pool.conns = map[*trackedConn]struct{}{}
		pool.mu.Unlock()
		for c := range conns {
			_ = c.Conn.Close()
		}
	}
}

// route sends requests to the server in use.
type route struct {
	servers *servers
	next    http.RoundTripper
}

func (r route) RoundTrip(req *http.Request) (*http.Response, error) {
	u := r.servers.url()
	if req.URL.Host != u.Host || req.URL.Scheme != u.Scheme {
		req = req.Clone(req.Context())
		req.URL.Scheme, req.URL.Host, req.Host = u.Scheme, u.Host, ""
	}
	resp, err := r.next.RoundTrip(req)
	switch {
	case err == nil:
		r.servers.succeeded.Store(time.Now().UnixNano())
	case req.Context().Err() == nil && !errors.Is(err, ErrFenced):
		r.servers.failed(u)
	}
	return resp, err
}
