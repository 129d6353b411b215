// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package k8s

import (
	"context"
	"net/http"

	"k8s.io/client-go/rest"
)

// Leading is how the cell that holds the lease reaches the API server, and how
// it lets the term's modules write.
type Leading interface {
	// LeaseConfig is for a client of the lease alone: its connection and its
	// rate are shared with nobody, and its writes are not fenced. In a plan it
	// reaches nothing.
	LeaseConfig() *rest.Config
	// Open lets the modules of the term that is entered next write while the
	// fence is open. before is what leaders since this process led last say was
	// written; nil means that there were none.
	Open(f *Fence, before *Written) error
	// Settle returns when no write can take effect any more, not even one that got
	// no answer, and it is known what became of those, or when ctx ends. The term
	// has ended, its fence is open.
	Settle(ctx context.Context)
	// Written is how far writes went, for the next leader. The term has ended.
	Written() Written
}

// leasing implements Leading.
type leasing struct {
	*door
	way         *route
	permissions *Permissions
}

func (l *leasing) LeaseConfig() *rest.Config {
	u := l.servers.url()
	var way http.RoundTripper = l.way
	if l.plan != nil {
		way = nowhere{}
	}
	return &rest.Config{Host: u.String(), Transport: withAgent{l.agent + " (leader)", way}, QPS: -1}
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

// Open implements Leading.
func (l *leasing) Open(f *Fence, before *Written) error {
	l.ledger.begin(before)
	return l.open(f)
}

// Written implements Leading.
func (l *leasing) Written() Written { return l.ledger.written() }
