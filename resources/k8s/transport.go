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

	"github.com/skep-operator/skep/resources/dryrun"
	"github.com/skep-operator/skep/resources/explain"
	"github.com/skep-operator/skep/resources/internal/fair"
	"github.com/skep-operator/skep/resources/internal/fenced"
	"github.com/skep-operator/skep/resources/leading"
)

// guardedTransport is what the requests of all modules pass.
type guardedTransport struct {
	log     *slog.Logger
	agent   string // skep/<version>
	servers *servers
	limiter *fair.Limiter
	metrics *clientMetrics
	reads   *endpointTransport
	// strict makes a write without a cause fail. Tests set it.
	strict bool
	// answerLimit is how long a request may be unanswered. Tests set a shorter one.
	answerLimit time.Duration

	progress   *leading.Tracker
	contention *contention
	history    *explain.History // nil: not recorded
	plan       *dryrun.Plan     // nil: a real run
	asked      *undeclared
	dialer     *dialer
	served     *servedVersions
	unserved   *unserved
	term       atomic.Pointer[writer] // of the term entered last, or nil
}

// writer is the transport for the writes of one term.
type writer struct {
	fence *leading.Fence
	next  http.RoundTripper
}

// open lets writes through as long as the fence is open. Clients made from now
// on, until it is called again, write under this fence and under no other.
func (d *guardedTransport) open(f *leading.Fence) error {
	if d.plan != nil {
		d.term.Store(&writer{fence: f, next: rejectAll{}})
		return nil
	}
	dial := fenced.NewDialer(f, d.dialer.dial, d.metrics.unsent)
	way, err := d.dialer.newEndpointTransport(d.servers, dial.DialContext)
	if err != nil {
		return err
	}
	f.OnClose(way.close)
	d.term.Store(&writer{fence: f, next: way})
	return nil
}

// moduleTransport is the transport of one module.
type moduleTransport struct {
	*guardedTransport
	module string
	writer *writer // nil in the process: reads only
}

// ErrReadOnly is the error of a write by a module that lives outside the term. It is not
// the error of a module of a term that has ended, which is [ErrFenced]: it is a mistake of
// the list of cells, and repeating the write never helps.
var ErrReadOnly = errors.New("only modules of the leader's term may write: add the module with WithInTerm(\"leader\")")

// ErrNoCause is the error of a write without a cause in its context, where [StrictCause] is
// set. Elsewhere it is not returned: the write is made, counted, and degrades the module.
var ErrNoCause = errors.New("a write without a cause: write through resources/reconcile, or set one with k8s.WithCause")

// RoundTrip implements http.RoundTripper.
func (d *moduleTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	d.asked.check(d.module, req)
	if d.plan == nil || !mutates(req) {
		if err := d.awaitTurn(req); err != nil {
			return refuse(req, err)
		}
	}
	req, limited := d.limitAnswer(req)
	req = req.Clone(req.Context())
	req.Header.Set("User-Agent", d.agent+" ("+d.module+")")
	began, host := time.Now(), d.servers.url().Host
	var resp *http.Response
	var err error
	if mutates(req) {
		resp, err = d.write(req)
	} else {
		resp, err = d.read(req)
		resp, err = verified(req, resp, err)
	}
	resp, err = limited(resp, err)
	hidePauses(req, resp)
	d.metrics.requested(d.module, host, req, resp, time.Since(began))
	return resp, err
}

// awaitTurn waits until the rate limit allows a request.
func (d *moduleTransport) awaitTurn(req *http.Request) error {
	began := time.Now()
	defer func() { d.metrics.Throttled.Observe(time.Since(began).Seconds()) }()
	return d.limiter.Wait(req.Context(), d.module)
}

func (d *moduleTransport) write(req *http.Request) (*http.Response, error) {
	if d.writer == nil {
		return refuse(req, fmt.Errorf("%s %s by %s: %w", req.Method, req.URL.Path, d.module, ErrReadOnly))
	}
	if CauseOf(req.Context()) == nil {
		d.metrics.Uncaused.WithLabelValues(d.module).Inc()
		d.asked.withoutCause(d.module, req)
		if d.strict {
			return refuse(req, fmt.Errorf("%s %s by %s: %w", req.Method, req.URL.Path, d.module, ErrNoCause))
		}
	}
	fence := d.writer.fence
	if err := fence.Check(); err != nil {
		return refuse(req, fmt.Errorf("%s %s: %w", req.Method, req.URL.Path, err))
	}
	ctx, done := leading.DetachForResponse(req.Context(), fence)
	began := time.Now()
	resp, err := d.send(req, ctx)
	resp, err = verified(req, resp, ifUnanswered(ctx, err))
	d.recordWrite(req, resp, err, time.Since(began))
	if err != nil {
		done()
		if fence.Check() != nil {
			err = fmt.Errorf("%s %s: %w (%w)", req.Method, req.URL.Path, leading.ErrFenced, err)
		}
		return nil, err
	}
	resp.Body = &closing{resp.Body, done}
	return resp, nil
}

var verbs = map[string]string{
	http.MethodPost: "create", http.MethodPut: "update", http.MethodPatch: "patch", http.MethodDelete: "delete",
}

// recordWrite adds a request to the history. Where the client reads the response, which
// says more, the client completes the record.
func (d *moduleTransport) recordWrite(req *http.Request, resp *http.Response, err error, took time.Duration) {
	ref, ok := refOf(req.URL.Path)
	if !ok {
		ref.Resource.Resource = req.URL.Path
	}
	w := explain.Write{
		Module: d.module, Verb: verbs[req.Method], Resource: resourceName(ref.Resource),
		Namespace: ref.Namespace, Name: ref.Name, Subresource: ref.Subresource,
		Result: "ok", Took: took, Cause: CauseOf(req.Context()),
	}
	switch r := writeResultOf(req); {
	case err != nil:
		w.Result = err.Error()
	case resp.StatusCode >= http.StatusMultipleChoices:
		w.Result = resp.Status
	case r != nil:
		r.write = &w
		return
	}
	if w.Name == "" && req.Method == http.MethodPost {
		w.Name = nameIn(req)
	}
	d.history.RecordWrite(w)
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
