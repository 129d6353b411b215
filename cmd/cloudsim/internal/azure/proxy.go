// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package azure

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"

	certutil "k8s.io/client-go/util/cert"
)

// newIdentity returns a certificate for hosts, with its key, and that of its authority as PEM.
func newIdentity(hosts []string) (authority []byte, pair tls.Certificate, err error) {
	certificates, key, err := certutil.GenerateSelfSignedCertKey(hosts[0], nil, hosts[1:])
	if err != nil {
		return nil, pair, fmt.Errorf("creating a certificate: %w", err)
	}
	pair, err = tls.X509KeyPair(certificates, key)
	return certificates, pair, err
}

// proxy is an HTTP proxy that connects to no host: what is sent through it reaches the handler.
type proxy struct {
	front, hosts *http.Server
	tunnels      tunnels
}

func newProxy(handler http.Handler, pair tls.Certificate) *proxy {
	p := &proxy{tunnels: tunnels{accepted: make(chan net.Conn), closed: make(chan struct{})}}
	p.hosts = &http.Server{Handler: handler, ReadHeaderTimeout: time.Minute, TLSConfig: &tls.Config{Certificates: []tls.Certificate{pair}}}
	p.front = &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodConnect {
			p.connect(w)
			return
		}
		handler.ServeHTTP(w, r)
	})}
	return p
}

// serve serves until ctx ends.
func (p *proxy) serve(ctx context.Context, l net.Listener) (err error) {
	p.tunnels.addr = l.Addr()
	ended := make(chan error, 2)
	go func() { ended <- p.front.Serve(l) }()
	go func() { ended <- p.hosts.ServeTLS(&p.tunnels, "", "") }()
	running := 2
	select {
	case <-ctx.Done():
	case err = <-ended:
		running--
	}
	err = errors.Join(err, p.front.Close(), p.hosts.Close())
	for range running {
		if of := <-ended; !errors.Is(of, http.ErrServerClosed) {
			err = errors.Join(err, of)
		}
	}
	return err
}

// connect makes the connection of a request one of the hosts' server.
func (p *proxy) connect(w http.ResponseWriter) {
	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	if _, err := fmt.Fprint(conn, "HTTP/1.1 200 Connection established\r\n\r\n"); err != nil || !p.tunnels.add(conn) {
		_ = conn.Close()
	}
}

// tunnels are a listener whose connections a proxy hands over.
type tunnels struct {
	addr     net.Addr
	accepted chan net.Conn
	closed   chan struct{}
	once     sync.Once
}

// add returns false if the listener is closed.
func (t *tunnels) add(conn net.Conn) bool {
	select {
	case t.accepted <- conn:
		return true
	case <-t.closed:
		return false
	}
}

// Accept implements net.Listener.
func (t *tunnels) Accept() (net.Conn, error) {
	select {
	case conn := <-t.accepted:
		return conn, nil
	case <-t.closed:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener.
func (t *tunnels) Close() error {
	t.once.Do(func() { close(t.closed) })
	return nil
}

// Addr implements net.Listener.
func (t *tunnels) Addr() net.Addr { return t.addr }
