// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package k8s

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync/atomic"
	"time"
)

// door is what the requests of all modules pass.
type door struct {
	log     *slog.Logger
	agent   string // skep/<version>
	servers *servers
	limiter *fairLimiter
	metrics *clientMetrics
	reads   http.RoundTripper
	// strict makes a write without a cause fail. Tests set it.
	strict bool

	dialer *dialer
	term   atomic.Pointer[writer] // of the term entered last, or nil
}

// writer is the way for the writes of one term.
type writer struct {
	fence *Fence
	next  http.RoundTripper
}

// Open lets writes through as long as the fence is open. Clients made from now
// on, until Open is called again, write under this fence and under no other.
func (d *door) Open(f *Fence) error {
	dial := newFencedDialer(f, d.dialer.dial, d.metrics.Unsent)
	pool, err := d.dialer.open(dial.DialContext)
	if err != nil {
		return err
	}
	f.OnClose(pool.plain.CloseIdleConnections)
	d.term.Store(&writer{fence: f, next: route{d.servers, pool}})
	return nil
}

// moduleDoor is the transport of one module.
type moduleDoor struct {
	*door
	module string
	writer *writer // nil in the process: reads only
}

// ErrReadOnly is the error of a write by a module that lives outside the term.
var ErrReadOnly = errors.New("only modules of the leader's term may write")

// ErrNoCause is the error of a write that nobody can explain.
var ErrNoCause = errors.New("a write without a cause: write through resources/reconcile, or set one with k8s.WithCause")

// RoundTrip implements http.RoundTripper.
func (d *moduleDoor) RoundTrip(req *http.Request) (*http.Response, error) {
	if err := d.limiter.Wait(req.Context(), d.module); err != nil {
		return nil, err
	}
	req = req.Clone(req.Context())
	req.Header.Set("User-Agent", d.agent+" ("+d.module+")")
	began := time.Now()
	var resp *http.Response
	var err error
	if mutates(req) {
		resp, err = d.write(req)
	} else {
		resp, err = d.reads.RoundTrip(req)
	}
	d.metrics.requested(d.module, req.Method, resp, time.Since(began))
	return resp, err
}

func (d *moduleDoor) write(req *http.Request) (*http.Response, error) {
	if d.writer == nil {
		return nil, fmt.Errorf("%s %s by %s: %w", req.Method, req.URL.Path, d.module, ErrReadOnly)
	}
	if CauseOf(req.Context()) == nil {
		d.metrics.Uncaused.WithLabelValues(d.module).Inc()
		if d.strict {
			return nil, fmt.Errorf("%s %s by %s: %w", req.Method, req.URL.Path, d.module, ErrNoCause)
		}
	}
	fence := d.writer.fence
	if err := fence.Check(); err != nil {
		return nil, fmt.Errorf("%s %s: %w", req.Method, req.URL.Path, err)
	}
	ctx, cancel := context.WithCancelCause(req.Context())
	stop := context.AfterFunc(fence.Context(), func() { cancel(ErrFenced) })
	done := func() { stop(); cancel(nil) }
	resp, err := d.writer.next.RoundTrip(req.WithContext(ctx))
	if err != nil {
		done()
		if fence.Check() != nil {
			err = fmt.Errorf("%s %s: %w (%w)", req.Method, req.URL.Path, ErrFenced, err)
		}
		return nil, err
	}
	resp.Body = &closing{resp.Body, done}
	return resp, nil
}

// closing runs a function when the body is closed.
type closing struct {
	io.ReadCloser
	then func()
}

func (c *closing) Close() error {
	defer c.then()
	return c.ReadCloser.Close()
}

// mutates reports whether a request changes anything. Reviews are questions,
// although they are asked with POST.
func mutates(req *http.Request) bool {
	switch req.Method {
	case http.MethodPost:
		return !isReview(req.URL.Path)
	case http.MethodPut, http.MethodPatch, http.MethodDelete:
		return true
	}
	return false
}

func isReview(path string) bool {
	return strings.HasSuffix(path, "reviews") &&
		(strings.HasPrefix(path, "/apis/authorization.k8s.io/") || strings.HasPrefix(path, "/apis/authentication.k8s.io/"))
}
