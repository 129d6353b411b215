// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package k8s

import (
	"fmt"
	"log/slog"
	"net/url"
	"sync"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/connrotation"
)

// servers are the API servers, one of which is in use. A server that cannot be
// reached makes way for the next; with a single one this does nothing.
type servers struct {
	log  *slog.Logger
	urls []*url.URL

	mu      sync.Mutex
	current int
	pools   map[*connrotation.Dialer]struct{}
}

func newServers(log *slog.Logger, hosts []string, base *rest.Config) (*servers, error) {
	if len(hosts) < 2 || base.Host != hosts[0] {
		hosts = []string{base.Host}
	}
	s := &servers{log: log, pools: map[*connrotation.Dialer]struct{}{}}
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

// newPool returns a pool that reconnect resets until it is forgotten.
func (s *servers) newPool(dial connrotation.DialFunc) *connrotation.Dialer {
	p := connrotation.NewDialer(dial)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pools[p] = struct{}{}
	return p
}

func (s *servers) forget(p *connrotation.Dialer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.pools, p)
}

// reconnect closes all connections; requests dial anew.
func (s *servers) reconnect() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for p := range s.pools {
		p.CloseAll()
	}
}
