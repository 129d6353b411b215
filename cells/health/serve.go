// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package health

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/skep-operator/skep/runtime/health"
)

// server serves HTTP at addresses, each as soon as it can be had. It
// implements lifecycle.Hook.
type server struct {
	name     string
	listen   []func() (net.Listener, error)
	tls      *tls.Config
	http     *http.Server
	log      *slog.Logger
	health   health.Reporter
	announce func(net.Addr)

	ctx    context.Context
	cancel context.CancelFunc
	done   sync.WaitGroup
}

// retryPort is how often an address that is taken is tried again.
const retryPort = 5 * time.Second

func newServer(name string, handler http.Handler, log *slog.Logger, h health.Reporter, listen ...func() (net.Listener, error)) *server {
	return &server{
		name: name, listen: listen, log: log, health: h.Part(name),
		http: &http.Server{Handler: handler, ReadHeaderTimeout: 10 * time.Second, ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug)},
	}
}

// tcp listens at an address.
func tcp(address string) func() (net.Listener, error) {
	return func() (net.Listener, error) { return net.Listen("tcp", address) }
}

// Start tries each address once before it returns, so that what can be served
// is served from then on.
func (s *server) Start(context.Context) error {
	s.ctx, s.cancel = context.WithCancel(context.Background())
	for _, listen := range s.listen {
		l, err := listen()
		if err == nil {
			s.serve(l)
			continue
		}
		s.log.Warn("cannot listen, trying on", "server", s.name, "error", err)
		s.health.Degraded("not served", err)
		s.done.Go(func() { s.keepTrying(listen) })
	}
	return nil
}

func (s *server) keepTrying(listen func() (net.Listener, error)) {
	for {
		select {
		case <-s.ctx.Done():
			return
		case <-time.After(retryPort):
		}
		l, err := listen()
		if err == nil {
			s.serve(l)
			return
		}
		s.health.Degraded("not served", err)
	}
}

func (s *server) serve(l net.Listener) {
	s.health.OK("serving at " + l.Addr().String())
	s.log.Info("serving", "server", s.name, "address", l.Addr().String())
	if s.announce != nil {
		s.announce(l.Addr())
	}
	if s.tls != nil {
		l = tls.NewListener(l, s.tls)
	}
	s.done.Go(func() {
		if err := s.http.Serve(l); err != nil && !errors.Is(err, http.ErrServerClosed) {
			s.health.Degraded("not served any more", err)
			s.log.Error("server ended", "server", s.name, "error", err)
		}
	})
}

// Stop lets requests that are under way finish until ctx ends.
func (s *server) Stop(ctx context.Context) error {
	s.cancel()
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	err := s.http.Shutdown(ctx)
	if err != nil {
		err = s.http.Close() // a client that keeps its request open is not waited for
	}
	s.done.Wait()
	if err != nil {
		return fmt.Errorf("closing the server %s: %w", s.name, err)
	}
	return nil
}
