// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

// Package outsidetest has for tests the internet as one server: what a client sends to any host goes there, unencrypted.
package outsidetest

import (
	"net/http"
	"net/http/httptest"
	"net/url"
)

// Front starts a server, and returns what hosts are reached through: all requests go to the server, which knows them by their Host.
// stop ends it.
func Front(h http.Handler) (network http.RoundTripper, stop func()) {
	front := httptest.NewServer(h)
	to, _ := url.Parse(front.URL)
	transport := &http.Transport{MaxIdleConnsPerHost: 100}
	return redirect{to, transport}, func() {
		transport.CloseIdleConnections()
		front.Close()
	}
}

type redirect struct {
	to   *url.URL
	next http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (r redirect) RoundTrip(req *http.Request) (*http.Response, error) {
	out := req.Clone(req.Context())
	out.URL.Scheme, out.URL.Host, out.Host = r.to.Scheme, r.to.Host, req.URL.Host
	resp, err := r.next.RoundTrip(out)
	if resp != nil {
		resp.Request = req
	}
	return resp, err
}
