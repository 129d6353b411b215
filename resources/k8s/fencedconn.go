// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package k8s

import (
	"context"
	"net"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sys/unix"
)

// fencedDialer dials connections that carry writes only while a fence is open,
// and that are reset when it shuts.
type fencedDialer struct {
	fence *Fence
	dial  func(ctx context.Context, network, address string) (net.Conn, error)
	// unsent counts bytes that the kernel held and dropped at the reset.
	unsent prometheus.Counter

	mu    sync.Mutex
	conns map[*fencedConn]struct{}
}

func newFencedDialer(f *Fence, dial func(context.Context, string, string) (net.Conn, error), unsent prometheus.Counter) *fencedDialer {
	d := &fencedDialer{fence: f, dial: dial, unsent: unsent, conns: map[*fencedConn]struct{}{}}
	f.OnClose(d.reset)
	return d
}

func (d *fencedDialer) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	if err := d.fence.Check(); err != nil {
		return nil, err
	}
	inner, err := d.dial(ctx, network, address)
	if err != nil {
		return nil, err
	}
	c := &fencedConn{Conn: inner, dialer: d}
	d.mu.Lock()
	d.conns[c] = struct{}{}
	d.mu.Unlock()
	if err := d.fence.Check(); err != nil { // it shut while dialling; reset may have missed this one
		c.reset()
		return nil, err
	}
	return c, nil
}

func (d *fencedDialer) reset() {
	d.mu.Lock()
	conns := d.conns
	d.conns = map[*fencedConn]struct{}{}
	d.mu.Unlock()
	for c := range conns {
		c.reset()
	}
}

// fencedConn is a connection of one term.
type fencedConn struct {
	net.Conn
	dialer *fencedDialer
}

// Write asks the fence before every write: a request that was prepared while
// the process stood still does not leave it.
func (c *fencedConn) Write(b []byte) (int, error) {
	if err := c.dialer.fence.Check(); err != nil {
		c.reset()
		return 0, err
	}
	return c.Conn.Write(b)
}

func (c *fencedConn) Close() error {
	c.dialer.mu.Lock()
	delete(c.dialer.conns, c)
	c.dialer.mu.Unlock()
	return c.Conn.Close()
}

// reset closes without letting the kernel send what it still holds.
func (c *fencedConn) reset() {
	if tcp, ok := c.Conn.(*net.TCPConn); ok {
		c.dialer.unsent.Add(float64(unsentBytes(tcp)))
		_ = tcp.SetLinger(0)
	}
	_ = c.Conn.Close()
}

// unsentBytes is what the other side has not acknowledged.
func unsentBytes(c *net.TCPConn) int64 {
	raw, err := c.SyscallConn()
	if err != nil {
		return 0
	}
	n := 0
	_ = raw.Control(func(fd uintptr) { n, _ = unix.IoctlGetInt(int(fd), unix.SIOCOUTQ) })
	return int64(n)
}
