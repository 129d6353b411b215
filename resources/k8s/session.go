// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package k8s

import (
	"context"
	"net/http"

	"k8s.io/client-go/rest"

	"github.com/skep-operator/skep/resources/leading"
)

// session implements leading.Session.
type session struct {
	*guardedTransport
	way         *endpointTransport
	permissions *Permissions
}

func (s *session) LeaseConfig() *rest.Config {
	u := s.servers.url()
	var way http.RoundTripper = s.way
	if s.plan != nil {
		way = rejectAll{}
	}
	return &rest.Config{Host: u.String(), Transport: withAgent{s.agent + " (leader)", way}, QPS: -1}
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

// Open implements leading.Session.
func (s *session) Open(f *leading.Fence, before *leading.WriteProgress) error {
	s.progress.Begin(before)
	s.contention.reset()
	return s.open(f)
}

// DrainWrites implements leading.Session.
func (s *session) DrainWrites(ctx context.Context) {
	reader, err := newClient(&moduleTransport{guardedTransport: s.guardedTransport, module: "leader"}, s.permissions, nil)
	if err != nil {
		return // the module's own client would have failed before
	}
	s.progress.Drain(ctx, s.log, revisionReader(reader))
}

// WriteProgress implements leading.Session.
func (s *session) WriteProgress() leading.WriteProgress { return s.progress.WriteProgress() }
