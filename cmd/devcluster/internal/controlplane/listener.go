// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package controlplane

import (
	"net"
	"sync"
)

// cutListener is a listener whose connections can be closed together. A stopping API
// server would wait a minute for its watches.
type cutListener struct {
	net.Listener

	mu    sync.Mutex
	conns map[*cutConn]struct{}
	isCut bool
}

func newCutListener(inner net.Listener) *cutListener {
	return &cutListener{Listener: inner, conns: map[*cutConn]struct{}{}}
}

func (l *cutListener) Accept() (net.Conn, error) {
	inner, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	conn := &cutConn{Conn: inner, listener: l}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.isCut {
		inner.Close()
	}
	l.conns[conn] = struct{}{}
	return conn, nil
}

// cut closes all connections and every later one.
func (l *cutListener) cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.isCut = true
	for conn := range l.conns {
		conn.Conn.Close()
	}
}

type cutConn struct {
	net.Conn
	listener *cutListener
}

func (c *cutConn) Close() error {
	c.listener.mu.Lock()
	delete(c.listener.conns, c)
	c.listener.mu.Unlock()
	return c.Conn.Close()
}
