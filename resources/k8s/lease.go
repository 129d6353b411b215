// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package k8s

import (
	"net/http"

	"k8s.io/client-go/rest"
)

// Leading is how the cell that holds the lease reaches the API server, and how
// it lets the term's modules write.
type Leading interface {
	// LeaseConfig is for a client of the lease alone: its connection and its
	// rate are shared with nobody, and its writes are not fenced.
	LeaseConfig() *rest.Config
	// Open lets the modules of the term that is entered next write while the
	// fence is open.
	Open(*Fence) error
}

// leasing implements Leading.
type leasing struct {
	*door
	pool http.RoundTripper
}

func (l *leasing) LeaseConfig() *rest.Config {
	u := l.servers.url()
	return &rest.Config{Host: u.String(), Transport: withAgent{l.agent + " (leader)", l.pool}, QPS: -1}
}

// withAgent sets the User-Agent.
type withAgent struct {
	agent string
	next  http.RoundTripper
}

func (a withAgent) RoundTrip(req *http.Request) (*http.Response, error) {
	req = req.Clone(req.Context())
	req.Header.Set("User-Agent", a.agent)
	return a.next.RoundTrip(req)
}
