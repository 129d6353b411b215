// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package fenced

import (
	"context"
	"net"
	"sync"

	"golang.org/x/sys/unix"
)

// Fence is the right to write during one term.
type Fence interface {
	// Check returns an error once the fence is shut.
	Check() error
	// OnClose calls c when the fence shuts for good, or now if it has. From then
	// on Check fails.
	OnClose(c func())
}

// DialFunc makes a connection.
type DialFunc func(ctx context.Context, network, address string) (net.Conn, error)

// Dialer dials connections that carry writes only while a fence is open, and
// that are reset when it shuts. It is safe for concurrent use.
type Dialer struct {
	fence  Fence
	dial   DialFunc
	unsent func(bytes int)

	mu    sync.Mutex
	conns map[*conn]struct{}
}

// NewDialer returns a dialer for one term. unsent is told how many bytes a reset
// dropped that the other side has not acknowledged; it may be nil.
func NewDialer(f Fence, dial DialFunc, unsent func(bytes int)) *Dialer {
	if unsent == nil {
		unsent = func(int) {}
	}
	d := &Dialer{fence: f, dial: dial, unsent: unsent, conns: map[*conn]struct{}{}}
	f.OnClose(d.reset)
	return d
}

// DialContext makes a connection, or returns the fence's error if it is shut.
func (d *Dialer) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	if err := d.fence.Check(); err != nil {
		return nil, err
	}
	inner, err := d.dial(ctx, network, address)
	if err != nil {
		return nil, err
	}
	c := &conn{Conn: inner, dialer: d}
	d.mu.Lock()
	d.conns[c] = struct{}{}
	d.mu.Unlock()
	if err := d.fence.Check(); err != nil { // it shut while dialling; reset may have missed this one
		c.reset()
		return nil, err
	}
	return c, nil
}

func (d *Dialer) reset() {
	d.mu.Lock()
	conns := d.conns
	d.conns = map[*conn]struct{}{}
	d.mu.Unlock()
	for c := range conns {
		c.reset()
	}
}

func (d *Dialer) forget(c *conn) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.conns, c)
}

// conn is a connection of one term.
type conn struct {
	net.Conn
	dialer *Dialer
}

// Write asks the fence before every write: a request that was prepared while
// the process stood still does not leave it.
func (c *conn) Write(b []byte) (int, error) {
	if err := c.dialer.fence.Check(); err != nil {
		c.reset()
		return 0, err
	}
	return c.Conn.Write(b)
}

// Close implements net.Conn.
func (c *conn) Close() error {
	c.dialer.forget(c)
	return c.Conn.Close()
}

// reset closes without letting the kernel send what it still holds.
func (c *conn) reset() {
	c.dialer.forget(c)
	if tcp, ok := c.Conn.(*net.TCPConn); ok {
		c.dialer.unsent(unsentBytes(tcp))
		_ = tcp.SetLinger(0)
	}
	_ = c.Conn.Close()
}

// unsentBytes is what the other side has not acknowledged.
func unsentBytes(c *net.TCPConn) int {
	raw, err := c.SyscallConn()
	if err != nil {
		return 0
	}
	n := 0
	_ = raw.Control(func(fd uintptr) { n, _ = unix.IoctlGetInt(int(fd), unix.SIOCOUTQ) })
	return n
}
