// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package k8s

import (
	"context"
	"errors"
	"net/http"
	"sync/atomic"
	"time"
)

// route sends the requests of one pool to the server in use.
type route struct {
	servers *servers
	pool    *connPool
	next    http.RoundTripper
	// impatient takes a request that runs out of time for a sign that the
	// connection is dead and the server perhaps, too.
	impatient bool

	succeeded atomic.Int64 // when an answer came last, in Unix nanoseconds
}

// newRoute opens a pool and returns the way through it. dial makes its
// connections.
func (d *dialer) newRoute(s *servers, dial dialFunc) (*route, error) {
	pool := s.newPool(dial)
	next, err := d.transport(pool.DialContext)
	if err != nil {
		s.forget(pool)
		return nil, err
	}
	r := &route{servers: s, pool: pool, next: next}
	r.succeeded.Store(time.Now().UnixNano())
	return r, nil
}

// RoundTrip implements http.RoundTripper.
func (r *route) RoundTrip(req *http.Request) (*http.Response, error) {
	u := r.servers.url()
	if req.URL.Host != u.Host || req.URL.Scheme != u.Scheme {
		req = req.Clone(req.Context())
		req.URL.Scheme, req.URL.Host, req.Host = u.Scheme, u.Host, ""
	}
	resp, err := r.next.RoundTrip(req)
	switch {
	case err == nil:
		r.answered(resp.StatusCode)
	case errors.Is(err, ErrFenced):
	case req.Context().Err() == nil:
		r.servers.failed(u)
	case r.impatient && errors.Is(req.Context().Err(), context.DeadlineExceeded):
		r.pool.reset()
		r.servers.failed(u)
	}
	return resp, err
}

// answered takes notice of an answer. A certificate that expired holds for as
// long as the connection does: a new one has what is in the file by now.
func (r *route) answered(status int) {
	switch {
	case status == http.StatusUnauthorized:
		r.pool.reset()
	case status < http.StatusInternalServerError:
		r.succeeded.Store(time.Now().UnixNano())
	}
}

// quiet is for how long no request has succeeded.
func (r *route) quiet() time.Duration { return time.Since(time.Unix(0, r.succeeded.Load())) }

// close ends the route: its connections are closed and it is not heard of again.
func (r *route) close() {
	r.servers.forget(r.pool)
	r.pool.reset()
}
