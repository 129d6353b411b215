// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package spiretest

import (
	"net"
	"sync"
)

// port is an address whose connections are served by one server after another, with no time between in which it could become that of another program.
type port struct {
	net.Listener
	accepted chan net.Conn
	over     chan struct{}
	end      func()
}

func openPort(address string) (*port, error) {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return nil, err
	}
	over := make(chan struct{})
	p := &port{Listener: listener, accepted: make(chan net.Conn), over: over, end: sync.OnceFunc(func() {
		close(over)
		_ = listener.Close()
	})}
	go p.accept()
	return p, nil
}

// accept ends when the port is closed.
func (p *port) accept() {
	for {
		conn, err := p.Accept()
		if err != nil {
			return
		}
		select {
		case p.accepted <- conn:
		case <-p.over:
			_ = conn.Close()
			return
		}
	}
}

// listener returns the listener of the next server, which it may close.
func (p *port) listener() net.Listener {
	over := make(chan struct{})
	return &listener{port: p, over: over, end: sync.OnceFunc(func() { close(over) })}
}

// listener is a port for one server.
type listener struct {
	port *port
	over chan struct{}
	end  func()
}

// Accept implements net.Listener.
func (l *listener) Accept() (net.Conn, error) {
	select {
	case conn := <-l.port.accepted:
		return conn, nil
	case <-l.over:
	case <-l.port.over:
	}
	return nil, net.ErrClosed
}

// Close implements net.Listener.
func (l *listener) Close() error { l.end(); return nil }

// Addr implements net.Listener.
func (l *listener) Addr() net.Addr { return l.port.Addr() }
