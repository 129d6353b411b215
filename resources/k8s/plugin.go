// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package k8s

import (
	"context"
	"fmt"
	"net/http"

	"golang.org/x/sync/singleflight"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/transport"

	"github.com/skep-operator/skep/runtime/health"
)

// execPlugin gets credentials from the exec plugin of a kubeconfig. client-go runs it
// inside the first request that needs them, and again inside one that was refused: a
// plugin that hangs would hold all requests up, whatever their contexts say. Here it
// runs apart from them, once for all.
type execPlugin struct {
	command string
	ask     http.RoundTripper // client-go's, before a transport that sends nothing
	runs    singleflight.Group
}

// newExecPlugin returns nil where base has no plugin, or credentials that go first.
func newExecPlugin(base *rest.Config, credentials *transport.Config) (*execPlugin, error) {
	if base.ExecProvider == nil || credentials.TLS.GetCertHolder == nil {
		return nil, nil
	}
	ask, err := transport.HTTPWrappersForConfig(credentials, unsent{})
	return &execPlugin{command: base.ExecProvider.Command, ask: ask}, err
}

// before puts the plugin before a transport that adds all but its token.
func (p *execPlugin) before(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(req *http.Request) (*http.Response, error) {
		authorization, err := p.authorization(req.Context())
		if err != nil {
			return nil, err
		}
		if authorization != "" { // else it has given a certificate
			req = req.Clone(req.Context())
			req.Header.Set("Authorization", authorization)
		}
		resp, err := next.RoundTrip(req)
		if err == nil && resp.StatusCode == http.StatusUnauthorized {
			p.run("refresh", http.StatusUnauthorized)
		}
		return resp, err
	})
}

// authorization is the header of requests. It waits for the plugin as long as ctx
// lasts.
func (p *execPlugin) authorization(ctx context.Context) (string, error) {
	waiting := fmt.Sprintf("waiting for credentials of the exec plugin %q", p.command)
	defer health.ReportBlocked(ctx, "credentials", waiting)()
	select {
	case got := <-p.run("ask", http.StatusOK):
		if got.Err != nil {
			return "", got.Err
		}
		return got.Val.(string), nil
	case <-ctx.Done():
		return "", fmt.Errorf("%s: %w", waiting, context.Cause(ctx))
	}
}

// run has client-go ask the plugin, unless it has what it needs. answer is that of the
// server to a request with the credentials: one of 401 makes it ask again.
func (p *execPlugin) run(purpose string, answer int) <-chan singleflight.Result {
	return p.runs.DoChan(purpose, func() (any, error) {
		req, err := http.NewRequest(http.MethodGet, "https://credentials.invalid", nil)
		if err != nil {
			return "", err
		}
		resp, err := p.ask.RoundTrip(req.WithContext(context.WithValue(context.Background(), answerKey{}, answer)))
		if err != nil {
			return "", fmt.Errorf("the exec plugin %q: %w", p.command, err)
		}
		return resp.Header.Get("Authorization"), nil
	})
}

type answerKey struct{}

// unsent is a transport that answers with the headers of the request, and sends
// nothing.
type unsent struct{}

func (unsent) RoundTrip(req *http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: req.Context().Value(answerKey{}).(int), Header: req.Header, Body: http.NoBody, Request: req}, nil
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }
