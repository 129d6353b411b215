// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package faultproxy

import (
	"fmt"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/skep-operator/skep/cmd/devcluster/internal/port"
	"github.com/skep-operator/skep/resources/clustertest/control"
)

const dialTimeout = 10 * time.Second

// Config describes a proxy.
type Config struct {
	ID      string
	Backend string
	// Seed of the random choices of rules; 0 means 1.
	Seed uint64
	// Link is the state to start in.
	Link control.Link
	Log  *slog.Logger
}

// Proxy is one front door on a loopback port of its own. Its methods are safe
// for concurrent use.
type Proxy struct {
	id, backend string
	log         *slog.Logger
	port        *port.Port
	dial        func(*conn) (net.Conn, error)
	link        *link
	http        *httpSide // nil: TCP only

	up, down, accepted atomic.Int64

	mu       sync.Mutex
	listener net.Listener // nil: refusing
	conns    map[*conn]struct{}
	closed   bool
	wg       sync.WaitGroup
}

// NewTCP opens a proxy that forwards bytes to address.
func NewTCP(cfg Config, address string) (*Proxy, error) {
	dialer := net.Dialer{Timeout: dialTimeout}
	return open(cfg, nil, func(*conn) (net.Conn, error) { return dialer.Dial("tcp", address) })
}

// NewHTTP opens a proxy that ends TLS and forwards HTTP requests to an API
// server.
func NewHTTP(cfg Config, backend Backend) (*Proxy, error) {
	side := newHTTPSide(cfg, backend)
	p, err := open(cfg, side, side.connect)
	if err != nil {
		side.close()
		return nil, err
	}
	return p, nil
}

func open(cfg Config, side *httpSide, dial func(*conn) (net.Conn, error)) (*Proxy, error) {
	reserved, err := port.Reserve()
	if err != nil {
		return nil, fmt.Errorf("open proxy %s: %w", cfg.ID, err)
	}
	p := &Proxy{
		id: cfg.ID, backend: cfg.Backend, log: cfg.Log.With("proxy", cfg.ID),
		port: reserved, dial: dial, http: side,
		link: newLink(control.Link{Refuse: true}), conns: map[*conn]struct{}{},
	}
	if err := p.SetLink(cfg.Link); err != nil {
		reserved.Close()
		return nil, fmt.Errorf("open proxy %s: %w", cfg.ID, err)
	}
	return p, nil
}

// ID names the proxy.
func (p *Proxy) ID() string { return p.id }

// Address is host:port, the same as long as the proxy lives.
func (p *Proxy) Address() string { return p.port.Address() }

// Info describes the proxy as it is now, without a kubeconfig.
func (p *Proxy) Info() control.Proxy {
	state, _ := p.link.get()
	p.mu.Lock()
	defer p.mu.Unlock()
	return control.Proxy{
		ID: p.id, Backend: p.backend, Address: p.Address(), Link: state,
		Connections: len(p.conns), Accepted: p.accepted.Load(),
		BytesUp: p.up.Load(), BytesDown: p.down.Load(),
	}
}

// SetLink replaces the state of the TCP side. When it returns, the listener is
// open or closed as the state says.
func (p *Proxy) SetLink(state control.Link) error {
	if err := validateLink(state); err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return fmt.Errorf("proxy %s is closed", p.id)
	}
	if err := p.listenLocked(!state.Refuse); err != nil {
		return err
	}
	p.link.set(state)
	return nil
}

func (p *Proxy) listenLocked(want bool) error {
	switch {
	case want && p.listener == nil:
		ln, err := p.port.Listen()
		if err != nil {
			return err
		}
		p.listener = ln
		p.wg.Go(func() { p.accept(ln) })
	case !want && p.listener != nil:
		p.listener.Close()
		p.listener = nil
	}
	return nil
}

func (p *Proxy) accept(ln net.Listener) {
	for {
		front, err := ln.Accept()
		if err != nil {
			return // closed
		}
		p.accepted.Add(1)
		p.wg.Go(func() { p.serve(front) })
	}
}

func (p *Proxy) serve(front net.Conn) {
	c := &conn{front: front, done: make(chan struct{})}
	back, err := p.dial(c)
	if err != nil {
		// The server is away: so is the connection.
		p.log.Debug("backend is unreachable", "error", err)
		setReset(front)
		front.Close()
		return
	}
	c.back = back
	if !p.track(c) {
		c.close(true)
		return
	}
	c.run(p.link, &p.up, &p.down)
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.conns, c)
}

func (p *Proxy) track(c *conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return false
	}
	p.conns[c] = struct{}{}
	return true
}

// Cut closes the open connections and says how many there were.
func (p *Proxy) Cut(how control.CutConnections) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := len(p.conns)
	for c := range p.conns {
		c.close(!how.Finish)
		delete(p.conns, c)
	}
	return n
}

// Heal removes every fault. What was held back is delivered.
func (p *Proxy) Heal() error {
	if p.http != nil {
		p.http.rules.clear()
	}
	return p.SetLink(control.Link{})
}

// AddRule validates a rule and adds it behind the others.
func (p *Proxy) AddRule(rule control.Rule) (control.Rule, error) {
	if p.http == nil {
		return rule, p.errNoHTTP()
	}
	return p.http.rules.add(rule)
}

// RemoveRule removes a rule and releases what it holds back.
func (p *Proxy) RemoveRule(id string) error {
	if p.http == nil {
		return p.errNoHTTP()
	}
	if !p.http.rules.remove(id) {
		return fmt.Errorf("proxy %s has no rule %q", p.id, id)
	}
	return nil
}

// Rules lists the rules with their hits.
func (p *Proxy) Rules() []control.Rule {
	if p.http == nil {
		return nil
	}
	return p.http.rules.list()
}

// CutWatches ends the matching open watches and says how many there were.
func (p *Proxy) CutWatches(which control.CutWatches) (int, error) {
	if p.http == nil {
		return 0, p.errNoHTTP()
	}
	if err := validateMatch(which.Match); err != nil {
		return 0, err
	}
	return p.http.watches.cut(which), nil
}

// Requests lists the requests after a sequence number, oldest first.
func (p *Proxy) Requests(after int64) []control.Request {
	if p.http == nil {
		return nil
	}
	return p.http.requests.after(after)
}

func (p *Proxy) errNoHTTP() error {
	return fmt.Errorf("proxy %s stands before %s and sees no HTTP requests: use its link instead of rules", p.id, p.backend)
}

// Close cuts all connections and gives the port back. It returns when nothing of
// the proxy runs any more.
func (p *Proxy) Close() {
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		return
	}
	p.closed = true
	_ = p.listenLocked(false) // closing does not fail
	p.mu.Unlock()

	p.Cut(control.CutConnections{})
	if p.http != nil {
		p.http.close()
	}
	p.wg.Wait()
	p.port.Close()
}
