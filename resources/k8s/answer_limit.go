// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package k8s

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/skep-operator/skep/resources/leading"
)

// answerLimit is how long a request may be without an answer. An API server ends its own work after a minute: what is open beyond that is a request that it, or a
// proxy, has lost on a connection that lives.
const answerLimit = 65 * time.Second

// UnansweredError is a request without an answer, or without the end of one, on a connection that lives. Nothing is known of what a write has done.
type UnansweredError struct {
	Method, Path string
	After        time.Duration
}

// Error implements error.
func (e *UnansweredError) Error() string {
	return fmt.Sprintf("%s %s is unanswered after %s", e.Method, e.Path, e.After)
}

// limitAnswer returns a request that ends when it is unanswered, and the function that its outcome passes. The limit is that of the whole answer; of a list, which
// its reader decodes meanwhile, that of its beginning and of each read. Watches are long by nature: streams end those that are silent. A write of a plan is
// sent to no server, and what it reads of one has a limit of its own.
func (d *guardedTransport) limitAnswer(req *http.Request) (*http.Request, func(*http.Response, error) (*http.Response, error)) {
	ref, isResource := refOf(req.URL.Path)
	if isWatch(req) || d.plan != nil && mutates(req) {
		return req, func(resp *http.Response, err error) (*http.Response, error) { return resp, err }
	}
	unanswered := &UnansweredError{Method: req.Method, Path: req.URL.Path, After: d.answerLimit}
	var a *answerBody
	if isResource && ref.Name == "" && req.Method == http.MethodGet && !isOfOne(req) {
		ctx, cancel := context.WithCancelCause(req.Context())
		a = &answerBody{ctx: ctx, end: func() { cancel(nil) }, limit: d.answerLimit}
		a.silent = time.AfterFunc(d.answerLimit, func() { cancel(unanswered) })
	} else { // a deadline, which ends a write at once: see leading.DetachForResponse
		ctx, cancel := context.WithTimeoutCause(req.Context(), d.answerLimit, unanswered)
		a = &answerBody{ctx: ctx, end: cancel}
	}
	return req.WithContext(a.ctx), func(resp *http.Response, err error) (*http.Response, error) {
		a.pause()
		if err != nil {
			err = ifUnanswered(a.ctx, err)
			a.end()
			return nil, err
		}
		a.ReadCloser = resp.Body
		resp.Body = a
		return resp, nil
	}
}

// isOfOne reports whether a list is of at most one object: it is read as a whole.
func isOfOne(req *http.Request) bool { return req.URL.Query().Get("limit") == "1" }

// ifUnanswered is the error of a request, which is that it is unanswered if its context has ended for that.
func ifUnanswered(ctx context.Context, err error) error {
	var unanswered *UnansweredError
	if errors.As(err, &unanswered) { // and it says more
		return err
	}
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, leading.ErrFenced) && errors.As(context.Cause(ctx), &unanswered) {
		return unanswered
	}
	return err
}

// answerBody is the body of an answer that has a limit.
type answerBody struct {
	io.ReadCloser
	ctx    context.Context
	end    func()
	limit  time.Duration
	silent *time.Timer // ends the request if its answer, or a read, has no data; nil where the limit is that of the whole answer
}

// pause stops the time until the next read.
func (a *answerBody) pause() {
	if a.silent != nil {
		a.silent.Stop()
	}
}

// Read implements io.Reader.
func (a *answerBody) Read(p []byte) (int, error) {
	if a.silent != nil {
		a.silent.Reset(a.limit)
		defer a.silent.Stop()
	}
	n, err := a.ReadCloser.Read(p)
	return n, ifUnanswered(a.ctx, err)
}

// Close implements io.Closer.
func (a *answerBody) Close() error {
	defer a.end()
	return a.ReadCloser.Close()
}
