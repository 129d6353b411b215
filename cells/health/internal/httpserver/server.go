// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package httpserver

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/skep-operator/skep/runtime/health"
	"github.com/skep-operator/skep/runtime/job"
)

// Server serves HTTP at addresses, each as soon as it is free. It implements
// lifecycle.Hook.
type Server struct {
	name   string
	listen []Listener
	http   *http.Server
	log    *slog.Logger

	TLS     *tls.Config // nil: plain
	OnStart func()      // nil: nothing
	OnStop  func()
	Health  health.Reporter

	ctx    context.Context // ends with Stop
	cancel context.CancelFunc
	done   sync.WaitGroup

	mu      sync.Mutex
	serving map[int]net.Addr
	failing map[int]error
}

// Listener listens at one address. It may return nil and no error where there
// is nothing to listen at.
type Listener func() (net.Listener, error)

// RetryInterval is the time between attempts to listen at an address that is taken.
const RetryInterval = 5 * time.Second

// New returns a server that reports to the part of that name.
func New(name string, l Limits, handler http.Handler, log *slog.Logger, h health.Reporter, listen ...Listener) *Server {
	s := &Server{
		name: name, listen: listen, log: log, Health: h.Child(name),
		http:    l.server(handler),
		serving: map[int]net.Addr{}, failing: map[int]error{},
	}
	s.http.ErrorLog = slog.NewLogLogger(log.Handler(), slog.LevelDebug)
	return s
}

// TCP listens at an address.
func TCP(address string) Listener {
	return func() (net.Listener, error) { return net.Listen("tcp", address) }
}

// Start tries each address once before it returns, so that what can be served
// is served from then on.
func (s *Server) Start(context.Context) error {
	s.ctx, s.cancel = context.WithCancel(context.Background())
	if s.OnStart != nil {
		s.OnStart()
	}
	for i := range s.listen {
		if l, again := s.try(i); l != nil || again {
			s.done.Go(func() { s.run(i, l) })
		}
	}
	return nil
}

// try listens at an address. again says that it is worth to try it later.
func (s *Server) try(i int) (l net.Listener, again bool) {
	l, err := s.listen[i]()
	if l == nil && err == nil {
		return nil, false
	}
	s.report(i, l, err)
	if l != nil && s.TLS != nil {
		l = tls.NewListener(l, s.TLS)
	}
	return l, err != nil
}

// run serves at an address until the server is stopped. l is nil while the
// address is taken.
func (s *Server) run(i int, l net.Listener) {
	for {
		if l != nil {
			err := s.http.Serve(l)
			if errors.Is(err, http.ErrServerClosed) {
				return
			}
			s.report(i, nil, err)
		}
		if !job.Sleep(s.ctx, RetryInterval) {
			return
		}
		l, _ = s.try(i)
	}
}

// report records the outcome of listening at an address, and reports that of all addresses.
func (s *Server) report(i int, l net.Listener, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		if s.failing[i] == nil {
			s.log.Warn("cannot listen, retrying", "server", s.name, "error", err)
		}
		s.failing[i] = err
		delete(s.serving, i)
	} else {
		s.log.Info("serving", "server", s.name, "address", l.Addr().String())
		s.serving[i] = l.Addr()
		delete(s.failing, i)
	}
	if len(s.failing) > 0 {
		s.Health.Degraded("not served; tried every "+RetryInterval.String(), errors.Join(slices.Collect(maps.Values(s.failing))...))
		return
	}
	s.Health.OK("serving at " + s.addresses())
}

// Addresses are where it serves, separated by commas.
func (s *Server) Addresses() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.addresses()
}

// HTTP is the server below, with its limits.
func (s *Server) HTTP() *http.Server { return s.http }

// addresses are where it serves. With mu held.
func (s *Server) addresses() string {
	var all []string
	for _, i := range slices.Sorted(maps.Keys(s.serving)) {
		all = append(all, s.serving[i].String())
	}
	return strings.Join(all, ", ")
}

// Stop lets requests that are under way finish, for two seconds or until ctx
// ends.
func (s *Server) Stop(ctx context.Context) error {
	s.cancel()
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	err := s.http.Shutdown(ctx)
	if err != nil {
		err = s.http.Close() // a client that keeps its request open is not waited for
	}
	s.done.Wait()
	if s.OnStop != nil {
		s.OnStop()
	}
	if err != nil {
		return fmt.Errorf("closing the server %s: %w", s.name, err)
	}
	return nil
}
