// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package k8s

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/skep-operator/skep/resources/dryrun"
)

// errPlan is the error of a request that a plan must not send.
var errPlan = errors.New("this is a plan: nothing is written to the API server, and no lease is taken")

// rejectAll is a way on which no request gets anywhere.
type rejectAll struct{}

func (rejectAll) RoundTrip(req *http.Request) (*http.Response, error) {
	return refuse(req, fmt.Errorf("%s %s: %w", req.Method, req.URL.Path, errPlan))
}

// send sends a write on its way, which a plan keeps to itself. ctx bounds it.
func (d *moduleTransport) send(req *http.Request, ctx context.Context) (*http.Response, error) {
	if d.plan != nil {
		return d.plan.Objects().Write(req.WithContext(ctx), target(req), d.module, versioned{d.guardedTransport, rateLimited{d}})
	}
	return d.track(req, func() (*http.Response, error) {
		return versioned{d.guardedTransport, d.writer.next}.RoundTrip(req.WithContext(ctx))
	})
}

// read sends a request that changes nothing. A plan reads its own writes.
func (d *moduleTransport) read(req *http.Request) (*http.Response, error) {
	server := versioned{d.guardedTransport, d.reads}
	if d.plan != nil {
		return d.plan.Objects().Read(req, target(req), server)
	}
	return server.RoundTrip(req)
}

// target is what a request is about, nothing where it is about no resource.
func target(req *http.Request) dryrun.Target {
	ref, ok := refOf(req.URL.Path)
	if !ok {
		return dryrun.Target{}
	}
	return dryrun.Target{Resource: ref.Resource, Namespace: ref.Namespace, Name: ref.Name, Subresource: ref.Subresource}
}

// rateLimited is the way to the server for what a plan reads on behalf of a module.
type rateLimited struct{ *moduleTransport }

func (p rateLimited) RoundTrip(req *http.Request) (*http.Response, error) {
	if err := p.limiter.Wait(req.Context(), p.module); err != nil {
		return refuse(req, err)
	}
	req, limited := p.limitAnswer(req)
	return limited(p.reads.RoundTrip(req))
}
