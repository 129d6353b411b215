// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package k8s

import (
	"context"
	"errors"
	"net/http"
	"sync/atomic"
	"time"

	"k8s.io/client-go/util/connrotation"

	"github.com/skep-operator/skep/resources/leading"
)

// endpointTransport sends the requests of one pool of connections to the server in use.
type endpointTransport struct {
	servers *servers
	pool    *connrotation.Dialer
	next    http.RoundTripper
	// resetOnTimeout treats the timeout of a request as a sign that the connection is
	// dead, and perhaps the server.
	resetOnTimeout bool

	succeeded atomic.Int64 // when the last response came, in Unix nanoseconds
}

// newEndpointTransport returns a transport with connections of its own, made by dial.
func (d *dialer) newEndpointTransport(s *servers, dial connrotation.DialFunc) (*endpointTransport, error) {
	pool := s.newPool(dial)
	next, err := d.transport(pool.DialContext)
	if err != nil {
		s.forget(pool)
		return nil, err
	}
	r := &endpointTransport{servers: s, pool: pool, next: next}
	r.succeeded.Store(time.Now().UnixNano())
	return r, nil
}

// RoundTrip implements http.RoundTripper.
func (r *endpointTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	u := r.servers.url()
	if req.URL.Host != u.Host || req.URL.Scheme != u.Scheme {
		req = req.Clone(req.Context())
		req.URL.Scheme, req.URL.Host, req.Host = u.Scheme, u.Host, ""
	}
	resp, err := r.next.RoundTrip(req)
	switch {
	case err == nil:
		r.answered(resp.StatusCode)
	case errors.Is(err, leading.ErrFenced):
	case r.lost(req):
		r.pool.CloseAll()
		r.servers.failed(u)
	case req.Context().Err() == nil:
		r.servers.failed(u)
	case r.resetOnTimeout && errors.Is(req.Context().Err(), context.DeadlineExceeded):
		r.pool.CloseAll()
		r.servers.failed(u)
	}
	return resp, err
}

// lost reports whether a request is unanswered, and no other one has been answered meanwhile: what is behind the connection may be gone.
func (r *endpointTransport) lost(req *http.Request) bool {
	var unanswered *UnansweredError
	return errors.As(context.Cause(req.Context()), &unanswered) && r.quiet() >= unanswered.After*9/10
}

// answered records a response. A certificate that expired holds for as
// long as the connection does: a new one has what is in the file by now.
func (r *endpointTransport) answered(status int) {
	switch {
	case status == http.StatusUnauthorized:
		r.pool.CloseAll()
	case status < http.StatusInternalServerError:
		r.succeeded.Store(time.Now().UnixNano())
	}
}

// quiet is how long ago the last request has succeeded.
func (r *endpointTransport) quiet() time.Duration {
	return time.Since(time.Unix(0, r.succeeded.Load()))
}

// close closes the connections, and excludes them from reconnects.
func (r *endpointTransport) close() {
	r.servers.forget(r.pool)
	r.pool.CloseAll()
}
