// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package health

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

// server serves HTTP at addresses, each as soon as it can be had. It
// implements lifecycle.Hook.
type server struct {
	name    string
	listen  []listener
	http    *http.Server
	tls     *tls.Config // nil: plain
	onStart func()      // nil: nothing
	onStop  func()
	log     *slog.Logger
	health  health.Reporter

	ctx    context.Context // ends with Stop
	cancel context.CancelFunc
	done   sync.WaitGroup

	mu      sync.Mutex
	serving map[int]net.Addr
	failing map[int]error
}

// listener listens at one address. It may return nil and no error where there
// is nothing to listen at.
type listener func() (net.Listener, error)

// retryPort is how often an address that is taken is tried again.
const retryPort = 5 * time.Second

func newServer(name string, handler http.Handler, log *slog.Logger, h health.Reporter, listen ...listener) *server {
	return &server{
		name: name, listen: listen, log: log, health: h.Part(name),
		http:    &http.Server{Handler: handler, ReadHeaderTimeout: 10 * time.Second, ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug)},
		serving: map[int]net.Addr{}, failing: map[int]error{},
	}
}

// tcp listens at an address.
func tcp(address string) listener {
	return func() (net.Listener, error) { return net.Listen("tcp", address) }
}

// Start tries each address once before it returns, so that what can be served
// is served from then on.
func (s *server) Start(context.Context) error {
	s.ctx, s.cancel = context.WithCancel(context.Background())
	if s.onStart != nil {
		s.onStart()
	}
	for i := range s.listen {
		if l, again := s.try(i); l != nil || again {
			s.done.Go(func() { s.run(i, l) })
		}
	}
	return nil
}

// try listens at an address. again says that it is worth to try it later.
func (s *server) try(i int) (l net.Listener, again bool) {
	l, err := s.listen[i]()
	if l == nil && err == nil {
		return nil, false
	}
	s.note(i, l, err)
	if l != nil && s.tls != nil {
		l = tls.NewListener(l, s.tls)
	}
	return l, err != nil
}

// run serves at an address until the server is stopped. l is nil while the
// address is taken.
func (s *server) run(i int, l net.Listener) {
	for {
		if l != nil {
			err := s.http.Serve(l)
			if errors.Is(err, http.ErrServerClosed) {
				return
			}
			s.note(i, nil, err)
		}
		if !job.Sleep(s.ctx, retryPort) {
			return
		}
		l, _ = s.try(i)
	}
}

// note reports what became of an address, of several together.
func (s *server) note(i int, l net.Listener, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		if s.failing[i] == nil {
			s.log.Warn("cannot listen, trying on", "server", s.name, "error", err)
		}
		s.failing[i] = err
		delete(s.serving, i)
	} else {
		s.log.Info("serving", "server", s.name, "address", l.Addr().String())
		s.serving[i] = l.Addr()
		delete(s.failing, i)
	}
	if len(s.failing) > 0 {
		s.health.Degraded("not served; tried every "+retryPort.String(), errors.Join(slices.Collect(maps.Values(s.failing))...))
		return
	}
	s.health.OK("serving at " + s.addresses())
}

// addresses are where it serves. With mu held.
func (s *server) addresses() string {
	var all []string
	for _, i := range slices.Sorted(maps.Keys(s.serving)) {
		all = append(all, s.serving[i].String())
	}
	return strings.Join(all, ", ")
}

// Stop lets requests that are under way finish, for two seconds or until ctx
// ends.
func (s *server) Stop(ctx context.Context) error {
	s.cancel()
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	err := s.http.Shutdown(ctx)
	if err != nil {
		err = s.http.Close() // a client that keeps its request open is not waited for
	}
	s.done.Wait()
	if s.onStop != nil {
		s.onStop()
	}
	if err != nil {
		return fmt.Errorf("closing the server %s: %w", s.name, err)
	}
	return nil
}
