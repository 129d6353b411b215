// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package httpserver

import (
	"container/list"
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"sync"
	"time"
)

// Limits bound what the clients of a server may hold.
type Limits struct {
	header, request, idle time.Duration // to send the headers, all of a request, the next request
	answer                time.Duration // to take the answer; 0 for profiles and streams, which take any time
	headerBytes           int
	connections           int
}

var (
	// Common is for probes, a few Prometheus and a command or two.
	Common = Limits{
		header: 5 * time.Second, request: 10 * time.Second, idle: 90 * time.Second, // Prometheus asks once a minute
		answer: 30 * time.Second, headerBytes: 16 << 10, connections: 128,
	}
	// Lasting are for answers that last as long as the client asks.
	Lasting = Common.lasting()
)

func (l Limits) lasting() Limits {
	l.answer = 0
	return l
}

// server is an HTTP server with these limits.
func (l Limits) server(handler http.Handler) *http.Server {
	open := &connections{limit: l.connections, next: liftReadDeadline(handler), waiting: list.New(), entries: map[net.Conn]*list.Element{}}
	return &http.Server{
		Handler:           open,
		ReadHeaderTimeout: l.header, ReadTimeout: l.request, IdleTimeout: l.idle, WriteTimeout: l.answer, MaxHeaderBytes: l.headerBytes,
		ConnState: open.changed,
		ConnContext: func(ctx context.Context, conn net.Conn) context.Context {
			return context.WithValue(ctx, connKey{}, conn)
		},
	}
}

// liftReadDeadline removes the read deadline from requests without a body. It bounds how long
// a client sends, and would cancel a handler that takes longer.
func liftReadDeadline(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ContentLength == 0 {
			_ = http.NewResponseController(w).SetReadDeadline(time.Time{}) // else the limit holds
		}
		next.ServeHTTP(w, r)
	})
}

type connKey struct{}

// connections bounds the number of open connections. For a new one beyond the limit the
// connection is closed that has been idle longest, so that idle clients block no probe.
type connections struct {
	limit int
	next  http.Handler

	mu      sync.Mutex
	waiting *list.List                 // of net.Conn: those without a request, the longest wait first
	entries map[net.Conn]*list.Element // all that are open; nil for one with a request, or that is being closed
}

// ServeHTTP implements http.Handler.
func (c *connections) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	conn, _ := r.Context().Value(connKey{}).(net.Conn)
	c.setWaiting(conn, false)
	defer c.setWaiting(conn, true)
	c.next.ServeHTTP(w, r)
}

func (c *connections) setWaiting(conn net.Conn, waits bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	entry, open := c.entries[conn]
	switch {
	case waits && open && entry == nil:
		c.entries[conn] = c.waiting.PushBack(conn)
	case !waits && entry != nil:
		c.waiting.Remove(entry)
		c.entries[conn] = nil
	}
}

// changed is the hook of an http.Server.
func (c *connections) changed(conn net.Conn, state http.ConnState) {
	switch state {
	case http.StateNew:
		if excess := c.opened(conn); excess != nil {
			closeAtOnce(excess)
		}
	case http.StateClosed, http.StateHijacked:
		c.setWaiting(conn, false)
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.entries, conn)
	}
}

// opened returns the connection that is to be closed for a new one, if any: the new one
// where all others are at work.
func (c *connections) opened(conn net.Conn) (excess net.Conn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.entries[conn] = c.waiting.PushBack(conn)
	if len(c.entries) <= c.limit {
		return nil
	}
	excess = c.waiting.Remove(c.waiting.Front()).(net.Conn)
	c.entries[excess] = nil
	return excess
}

// closeAtOnce closes a connection without a TLS alert: sending one may block.
func closeAtOnce(conn net.Conn) {
	if secure, ok := conn.(*tls.Conn); ok {
		conn = secure.NetConn()
	}
	conn.Close()
}
