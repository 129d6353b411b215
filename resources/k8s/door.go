// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package k8s

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/skep-operator/skep/resources/explain"
	"github.com/skep-operator/skep/resources/internal/fair"
	"github.com/skep-operator/skep/resources/internal/fenced"
	"github.com/skep-operator/skep/resources/plan"
)

// door is what the requests of all modules pass.
type door struct {
	log     *slog.Logger
	agent   string // skep/<version>
	servers *servers
	limiter *fair.Limiter
	metrics *clientMetrics
	reads   *route
	// strict makes a write without a cause fail. Tests set it.
	strict bool

	ledger *ledger
	book   *explain.Book // nil: nobody wants to know
	plan   *plan.Plan    // nil: a real run
	dialer *dialer
	term   atomic.Pointer[writer] // of the term entered last, or nil
}

// writer is the way for the writes of one term.
type writer struct {
	fence *Fence
	next  http.RoundTripper
}

// open lets writes through as long as the fence is open. Clients made from now
// on, until it is called again, write under this fence and under no other.
func (d *door) open(f *Fence) error {
	if d.plan != nil {
		d.term.Store(&writer{fence: f, next: nowhere{}})
		return nil
	}
	dial := fenced.NewDialer(f, d.dialer.dial, d.metrics.unsent)
	way, err := d.dialer.newRoute(d.servers, dial.DialContext)
	if err != nil {
		return err
	}
	f.OnClose(way.close)
	d.term.Store(&writer{fence: f, next: way})
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
	if d.plan == nil || !mutates(req) {
		if err := d.limiter.Wait(req.Context(), d.module); err != nil {
			return refuse(req, err)
		}
	}
	req = req.Clone(req.Context())
	req.Header.Set("User-Agent", d.agent+" ("+d.module+")")
	began := time.Now()
	var resp *http.Response
	var err error
	if mutates(req) {
		resp, err = d.write(req)
	} else {
		resp, err = d.read(req)
	}
	d.metrics.requested(d.module, req.Method, resp, time.Since(began))
	return resp, err
}

func (d *moduleDoor) write(req *http.Request) (*http.Response, error) {
	if d.writer == nil {
		return refuse(req, fmt.Errorf("%s %s by %s: %w", req.Method, req.URL.Path, d.module, ErrReadOnly))
	}
	if CauseOf(req.Context()) == nil {
		d.metrics.Uncaused.WithLabelValues(d.module).Inc()
		if d.strict {
			return refuse(req, fmt.Errorf("%s %s by %s: %w", req.Method, req.URL.Path, d.module, ErrNoCause))
		}
	}
	fence := d.writer.fence
	if err := fence.Check(); err != nil {
		return refuse(req, fmt.Errorf("%s %s: %w", req.Method, req.URL.Path, err))
	}
	ctx, done := outlast(req.Context(), fence)
	began := time.Now()
	resp, err := d.send(req, ctx)
	d.note(req, resp, err, time.Since(began))
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

var verbs = map[string]string{
	http.MethodPost: "create", http.MethodPut: "update", http.MethodPatch: "patch", http.MethodDelete: "delete",
}

// note writes a request into the book. Who reads the answer knows more, and does
// it then.
func (d *moduleDoor) note(req *http.Request, resp *http.Response, err error, took time.Duration) {
	ref, ok := refOf(req.URL.Path)
	if !ok {
		ref.Resource.Resource = req.URL.Path
	}
	w := explain.Write{
		Module: d.module, Verb: verbs[req.Method], Resource: resourceName(ref.Resource),
		Namespace: ref.Namespace, Name: ref.Name, Subresource: ref.Subresource,
		Result: "ok", Took: took, Cause: CauseOf(req.Context()),
	}
	switch r := receiptOf(req); {
	case err != nil:
		w.Result = err.Error()
	case resp.StatusCode >= 300:
		w.Result = resp.Status
	case r != nil:
		r.write = &w
		return
	}
	d.book.Wrote(w)
}

// refuse does not send a request; as of any transport, the body is closed.
func refuse(req *http.Request, err error) (*http.Response, error) {
	if req.Body != nil {
		_ = req.Body.Close()
	}
	return nil, err
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

// isReview looks for the group anywhere: an API server may have its API below a
// path of its own.
func isReview(path string) bool {
	return strings.HasSuffix(path, "reviews") &&
		(strings.Contains(path, "/apis/authorization.k8s.io/") || strings.Contains(path, "/apis/authentication.k8s.io/"))
}
