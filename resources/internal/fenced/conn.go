// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package fenced

import (
	"context"
	"net"
	"sync"

	"golang.org/x/sys/unix"
)

// Fence permits writes during one term.
type Fence interface {
	// Check returns an error once the fence is closed.
	Check() error
	// OnClose calls c when the fence closes, or at once if it is closed. From then
	// on Check fails.
	OnClose(c func())
}

// DialFunc makes a connection.
type DialFunc func(ctx context.Context, network, address string) (net.Conn, error)

// Dialer dials connections that accept writes only while a fence is open and that are
// reset when it closes. It is safe for concurrent use.
type Dialer struct {
	fence  Fence
	dial   DialFunc
	unsent func(bytes int)

	mu    sync.Mutex
	conns map[*conn]struct{}
}

// NewDialer returns a dialer for one term. unsent, which may be nil, is called after a
// reset with the number of bytes that the peer has not acknowledged.
func NewDialer(f Fence, dial DialFunc, unsent func(bytes int)) *Dialer {
	if unsent == nil {
		unsent = func(int) {}
	}
	d := &Dialer{fence: f, dial: dial, unsent: unsent, conns: map[*conn]struct{}{}}
	f.OnClose(d.reset)
	return d
}

// DialContext dials a connection, or returns the error of a closed fence.
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
	if err := d.fence.Check(); err != nil { // closed while dialling; reset may have missed this one
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

// Write checks the fence before every write: a request prepared before the process was
// suspended is not sent after the deadline.
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

// reset closes the connection and drops what the kernel has not sent.
func (c *conn) reset() {
	c.dialer.forget(c)
	if tcp, ok := c.Conn.(*net.TCPConn); ok {
		c.dialer.unsent(unsentBytes(tcp))
		_ = tcp.SetLinger(0)
	}
	_ = c.Conn.Close()
}

// unsentBytes returns the number of bytes that the peer has not acknowledged.
func unsentBytes(c *net.TCPConn) int {
	raw, err := c.SyscallConn()
	if err != nil {
		return 0
	}
	n := 0
	_ = raw.Control(func(fd uintptr) { n, _ = unix.IoctlGetInt(int(fd), unix.SIOCOUTQ) })
	return n
}
