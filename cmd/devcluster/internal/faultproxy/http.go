// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package faultproxy

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/skep-operator/skep/resources/clustertest/control"
)

// Backend is an API server and what it takes to stand before it.
type Backend struct {
	URL *url.URL
	// RootCAs is what the API server is trusted by.
	RootCAs *x509.CertPool
	// ServerCert is what the proxy shows to clients; ClientCAs is what it
	// trusts their certificates by.
	ServerCert tls.Certificate
	ClientCAs  *x509.CertPool
	// FrontProxy is the certificate with which the proxy vouches for clients
	// that showed one of their own: their certificate cannot travel through a
	// proxy that ends TLS. Tokens simply pass.
	FrontProxy tls.Certificate
}

// httpSide is the part of a proxy that understands requests. The TCP side hands
// it connections through connect.
type httpSide struct {
	server   *http.Server
	proxy    *httputil.ReverseProxy
	incoming *handover
	plain    *http.Transport
	vouching *http.Transport

	rules    *ruleSet
	requests *ring
	watches  *watchSet
}

func newHTTPSide(cfg Config, backend Backend) *httpSide {
	h := &httpSide{
		incoming: newHandover(),
		plain:    newTransport(&tls.Config{RootCAs: backend.RootCAs}),
		vouching: newTransport(&tls.Config{
			RootCAs:      backend.RootCAs,
			Certificates: []tls.Certificate{backend.FrontProxy},
		}),
		rules:    newRuleSet(cfg.Seed),
		requests: newRing(),
		watches:  newWatchSet(),
	}
	quiet := slog.NewLogLogger(cfg.Log.Handler(), slog.LevelDebug)
	h.proxy = &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(backend.URL)
			r.Out.Host = r.In.Host // SetURL changes it
		},
		Transport:      h,
		FlushInterval:  -1,
		ModifyResponse: h.answered,
		// The server is away, and so is the connection: no 502, which no API
		// server says.
		ErrorHandler: func(_ http.ResponseWriter, r *http.Request, err error) {
			cfg.Log.Debug("request was not answered", "error", err)
			exchangeOf(r).entry.finish()
			if r.Context().Err() == nil { // or else it is the client that went away
				connOf(r).close(true)
			}
			panic(http.ErrAbortHandler)
		},
		ErrorLog: quiet,
	}
	h.server = &http.Server{
		Handler: h,
		TLSConfig: &tls.Config{
			Certificates: []tls.Certificate{backend.ServerCert},
			ClientAuth:   tls.VerifyClientCertIfGiven,
			ClientCAs:    backend.ClientCAs,
		},
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			front := c.(*tls.Conn).NetConn().(*handedConn).front
			return context.WithValue(ctx, connKey{}, front)
		},
		ErrorLog: quiet,
	}
	go h.server.ServeTLS(h.incoming, "", "") // returns when the server is closed
	return h
}

func newTransport(config *tls.Config) *http.Transport {
	return &http.Transport{
		TLSClientConfig:     config,
		ForceAttemptHTTP2:   true,
		DisableCompression:  true,
		MaxIdleConnsPerHost: 100,
		IdleConnTimeout:     90 * time.Second,
	}
}

// connect makes a connection of the HTTP server for a client's connection.
func (h *httpSide) connect(front *conn) (net.Conn, error) {
	ours, theirs := net.Pipe()
	if err := h.incoming.put(&handedConn{theirs, front}); err != nil {
		return nil, err
	}
	return ours, nil
}

func (h *httpSide) close() {
	h.server.Close()
	h.incoming.Close()
	h.plain.CloseIdleConnections()
	h.vouching.CloseIdleConnections()
}

type (
	connKey     struct{}
	exchangeKey struct{}
)

func connOf(r *http.Request) *conn         { return r.Context().Value(connKey{}).(*conn) }
func exchangeOf(r *http.Request) *exchange { return r.Context().Value(exchangeKey{}).(*exchange) }

// exchange is a request on its way.
type exchange struct {
	facts facts
	entry entry
}

// ServeHTTP applies the rules and forwards what they let through.
func (h *httpSide) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	x := &exchange{facts: factsOf(r)}
	x.entry = h.requests.add(r, x.facts)
	defer x.entry.finish()
	r = r.WithContext(context.WithValue(r.Context(), exchangeKey{}, x))
	if serveRedirected(w, r, x.entry) {
		return
	}

	verdict := h.rules.decide(x.facts)
	x.entry.fired(verdict.ids)
	for _, d := range verdict.delays {
		if !d.wait(r.Context()) {
			panic(http.ErrAbortHandler) // the client gave up
		}
	}
	switch {
	case verdict.status != nil:
		x.entry.answered(verdict.status.Code)
		writeStatus(w, r.Method, x.facts, *verdict.status)
	case verdict.lose != nil:
		h.loseAnswer(r, *verdict.lose)
	case verdict.spoil != nil:
		h.spoil(w, r, *verdict.spoil)
	default:
		h.proxy.ServeHTTP(w, r)
	}
}

// loseAnswer lets the server do its work, whatever the client does meanwhile,
// and breaks the client's stream instead of answering.
func (h *httpSide) loseAnswer(r *http.Request, how control.LoseAnswer) {
	x := exchangeOf(r)
	ctx, cancel := context.WithCancel(context.WithoutCancel(r.Context()))
	defer cancel()
	sink := &discard{header: http.Header{}}
	if x.facts.verb == "watch" {
		// A watch has no end to wait for: its start is lost.
		sink.onHeader = cancel
	}
	h.forward(sink, r.WithContext(ctx))
	x.entry.answered(-1)
	x.entry.finish() // before the client can tell
	if how.Connection {
		connOf(r).close(true)
	}
	panic(http.ErrAbortHandler)
}

// forward is a forwarding whose failure is no reason to stop.
func (h *httpSide) forward(w http.ResponseWriter, r *http.Request) {
	defer func() {
		if cause := recover(); cause != nil && cause != http.ErrAbortHandler {
			panic(cause)
		}
	}()
	h.proxy.ServeHTTP(w, r)
}

// answered sees each answer of the server before the client does.
func (h *httpSide) answered(resp *http.Response) error {
	x := exchangeOf(resp.Request)
	x.entry.answered(resp.StatusCode)
	if x.facts.verb == "watch" && resp.StatusCode == http.StatusOK {
		resp.Body = h.watches.open(resp, x.facts, h.rules)
	}
	return nil
}

// RoundTrip sends a request to the server, with the identity of the client's certificate
// in headers, and an ID for the audit log that tells when it was sent. Such headers of
// clients are removed.
func (h *httpSide) RoundTrip(r *http.Request) (*http.Response, error) {
	for name := range r.Header {
		if strings.HasPrefix(name, "X-Remote-") {
			r.Header.Del(name)
		}
	}
	if err := readBody(r); err != nil {
		return nil, err
	}
	r.Header.Set(control.AuditIDHeader, control.AuditID(connOf(r).arrived.get()))
	if r.TLS == nil || len(r.TLS.VerifiedChains) == 0 || r.Header.Get("Authorization") != "" {
		return h.plain.RoundTrip(r)
	}
	subject := r.TLS.PeerCertificates[0].Subject
	r.Header.Set("X-Remote-User", subject.CommonName)
	r.Header["X-Remote-Group"] = subject.Organization
	return h.vouching.RoundTrip(r)
}

// readBody reads the body before the request is sent on. A server may answer without
// reading it, and then server, proxy and client would wait for each other: the proxy
// does not end its answer before it has been read.
func readBody(r *http.Request) error {
	if r.Body == nil || r.Body == http.NoBody {
		return nil
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return err
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	return nil
}

// discard is a ResponseWriter that keeps nothing.
type discard struct {
	header   http.Header
	onHeader func()
}

func (d *discard) Header() http.Header         { return d.header }
func (d *discard) Write(b []byte) (int, error) { return len(b), nil }
func (d *discard) WriteHeader(int) {
	if d.onHeader != nil {
		d.onHeader()
	}
}

// handover is a listener whose connections are put there by hand.
type handover struct {
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func newHandover() *handover {
	return &handover{conns: make(chan net.Conn), closed: make(chan struct{})}
}

func (l *handover) put(c net.Conn) error {
	select {
	case l.conns <- c:
		return nil
	case <-l.closed:
		return net.ErrClosed
	}
}

func (l *handover) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *handover) Close() error {
	l.once.Do(func() { close(l.closed) })
	return nil
}

func (l *handover) Addr() net.Addr { return &net.UnixAddr{Name: "faultproxy", Net: "pipe"} }

// handedConn remembers the client's connection behind a pipe.
type handedConn struct {
	net.Conn
	front *conn
}

// RemoteAddr is the client's.
func (c *handedConn) RemoteAddr() net.Addr { return c.front.front.RemoteAddr() }
