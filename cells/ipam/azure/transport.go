// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package azure

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"strings"

	"github.com/skep-operator/skep/resources/outside"
)

// network is what Azure is reached through.
type network interface{ http.RoundTripper }

func newNetwork() network { return outside.Network(metadataHost) }

// pass is a transport of the SDK whose requests pass the door.
type pass struct {
	server *outside.Door
	next   network
	// operation is that of requests for tokens, which change nothing whatever their method; "" for other requests, whose
	// context has it.
	operation string
}

// call is what a request is for.
type call struct {
	operation string // in the words of the original, for metrics
	change    *outside.Call
}

type callKey struct{}

// reading returns a context for requests that read.
func reading(ctx context.Context, operation string) context.Context {
	return context.WithValue(ctx, callKey{}, call{operation: operation})
}

// changing returns a context for a request that changes something.
func changing(ctx context.Context, c outside.Call) context.Context {
	return context.WithValue(ctx, callKey{}, call{c.Operation, &c})
}

// Do implements policy.Transporter. An answer is read before the call is over, since its context ends then.
func (p pass) Do(req *http.Request) (resp *http.Response, err error) {
	of, _ := req.Context().Value(callKey{}).(call)
	sent := false
	send := func(ctx context.Context) (err error) {
		sent = true
		resp, err = outside.Exchange(p.next, req.WithContext(ctx))
		return err
	}
	switch {
	case p.operation != "":
		err = p.server.ReadOperation(req.Context(), p.operation, send)
	case req.Method == http.MethodGet:
		err = p.server.ReadOperation(req.Context(), cmp.Or(of.operation, "read"), send)
	case of.change != nil:
		err = p.server.Do(req.Context(), *of.change, send)
	default:
		err = p.server.Do(req.Context(), outside.Call{Verb: strings.ToLower(req.Method), Resource: "requests", Name: req.URL.Path}, send)
	}
	switch {
	case err == nil:
		return resp, nil
	case !sent, errors.As(err, new(*outside.ThrottledError)):
		return nil, final{err} // the engine keeps the pause
	case resp != nil:
		return resp, nil // the SDK makes errors of answers
	}
	return nil, err
}

// final is an error of the door, which the SDK does not retry.
type final struct{ error }

func (f final) Unwrap() error { return f.error }

// NonRetriable marks the error for the SDK.
func (final) NonRetriable() {}
