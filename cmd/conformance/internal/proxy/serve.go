// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package proxy

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/skep-operator/skep/cmd/conformance/internal/balance"
)

// Listener serves an address with a listener of a configuration, which may be replaced.
type Listener struct {
	name   string // of the listener, "" for the first one
	config atomic.Pointer[Config]
	socket net.Listener
	http   *http.Server
	queue  queue
	jobs   sync.WaitGroup
}

// Listen serves an address until Close.
func Listen(address, name string, c *Config) (*Listener, error) {
	socket, err := net.Listen("tcp", address)
	if err != nil {
		return nil, err
	}
	l := &Listener{name: name, socket: socket, queue: queue{make(chan net.Conn), make(chan struct{}), socket.Addr()}}
	l.config.Store(c)
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	protocols.SetHTTP2(true)
	protocols.SetUnencryptedHTTP2(true)
	l.http = &http.Server{
		Handler: http.HandlerFunc(l.serveHTTP), Protocols: protocols, ReadHeaderTimeout: time.Minute,
		ErrorLog: log.New(io.Discard, "", 0),
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			if secure, ok := c.(*tls.Conn); ok {
				c = secure.NetConn()
			}
			return context.WithValue(ctx, chainKey{}, c.(*inspected).chain)
		},
	}
	l.jobs.Go(func() { _ = l.http.Serve(l.queue) })
	l.jobs.Go(l.accept)
	return l, nil
}

// Set replaces the configuration.
func (l *Listener) Set(c *Config) { l.config.Store(c) }

// Close accepts no connections any more. Those that were passed on to backends end by themselves.
func (l *Listener) Close() {
	_ = l.socket.Close()
	close(l.queue.closed)
	_ = l.http.Close()
	l.jobs.Wait()
}

func (l *Listener) accept() {
	for {
		c, err := l.socket.Accept()
		if err != nil {
			return
		}
		go l.serve(c)
	}
}

type chainKey struct{}

// inspected is a connection of which the first bytes were read, which it replays.
type inspected struct {
	net.Conn
	first *bufio.Reader
	chain *chain
}

func (c *inspected) Read(to []byte) (int, error) { return c.first.Read(to) }

// serve finds the filter chain of a connection. Without one, or without filters, it is closed.
func (l *Listener) serve(socket net.Conn) {
	c := &inspected{Conn: socket, first: bufio.NewReaderSize(socket, 32<<10)}
	_ = c.SetReadDeadline(time.Now().Add(inspectTimeout))
	serverName, isTLS, err := c.inspect()
	_ = c.SetReadDeadline(time.Time{})
	config := l.config.Load()
	if err == nil {
		c.chain = config.chainFor(l.name, serverName, isTLS)
	}
	if c.chain == nil || c.chain.table == "" && len(c.chain.tcp) == 0 {
		_ = socket.Close()
		return
	}
	var plain net.Conn = c
	if c.chain.terminates {
		settings, err := config.tlsConfig(c.chain)
		if err != nil {
			_ = socket.Close()
			return
		}
		plain = tls.Server(c, settings)
	}
	if len(c.chain.tcp) > 0 {
		config.splice(plain, c.chain)
		return
	}
	l.queue.put(plain)
}

// inspect reads what a client begins with: whether that is TLS, and for which server name.
func (c *inspected) inspect() (serverName string, isTLS bool, err error) {
	const handshake, headerSize = 22, 5
	start, err := c.first.Peek(1)
	if err != nil || start[0] != handshake {
		return "", false, err
	}
	header, err := c.first.Peek(headerSize)
	if err != nil {
		return "", true, err
	}
	record, err := c.first.Peek(headerSize + int(header[3])<<8 + int(header[4]))
	if err != nil {
		return "", true, err
	}
	done := errors.New("inspected")
	err = tls.Server(readOnly{bytes.NewReader(record)}, &tls.Config{GetConfigForClient: func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
		serverName = hello.ServerName
		return nil, done
	}}).Handshake()
	if !errors.Is(err, done) {
		return "", true, err
	}
	return serverName, true, nil
}

// readOnly is a connection with a client of which only some bytes are known.
type readOnly struct{ io.Reader }

func (readOnly) Write(p []byte) (int, error)      { return len(p), nil }
func (readOnly) Close() error                     { return nil }
func (readOnly) LocalAddr() net.Addr              { return nil }
func (readOnly) RemoteAddr() net.Addr             { return nil }
func (readOnly) SetDeadline(time.Time) error      { return nil }
func (readOnly) SetReadDeadline(time.Time) error  { return nil }
func (readOnly) SetWriteDeadline(time.Time) error { return nil }

// splice connects a client with a backend.
func (c *Config) splice(client net.Conn, f *chain) {
	backend, err := c.dial(f.tcp[choose(f.tcp)].cluster)
	if err != nil {
		_ = client.Close()
		return
	}
	balance.Splice(client, backend)
}

// queue hands connections to an HTTP server.
type queue struct {
	conns  chan net.Conn
	closed chan struct{}
	addr   net.Addr
}

func (q queue) put(c net.Conn) {
	select {
	case q.conns <- c:
	case <-q.closed:
		_ = c.Close()
	}
}

// Accept implements net.Listener.
func (q queue) Accept() (net.Conn, error) {
	select {
	case c := <-q.conns:
		return c, nil
	case <-q.closed:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener.
func (queue) Close() error { return nil }

// Addr implements net.Listener.
func (q queue) Addr() net.Addr { return q.addr }
