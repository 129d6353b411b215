// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package proxy

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptrace"
	"slices"
	"strings"
	"time"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
)

// upstream sends a request to endpoints of its cluster, as often as its route says, and copies of it to others.
type upstream struct {
	config  *Config
	route   *route
	cluster string
	failure error // of the rewriting of the request
}

// plain and h2c speak the versions of HTTP. Connections are not used again for HTTP/1.1: Go would send requests again by itself
// that fail on one.
var (
	plain = &http.Transport{DisableKeepAlives: true, DisableCompression: true, DialContext: (&net.Dialer{Timeout: connectTimeout}).DialContext}
	h2c   = &http.Transport{DisableCompression: true, Protocols: onlyHTTP2(), DialContext: (&net.Dialer{Timeout: connectTimeout}).DialContext}
)

func onlyHTTP2() *http.Protocols {
	p := new(http.Protocols)
	p.SetUnencryptedHTTP2(true)
	return p
}

// RoundTrip implements http.RoundTripper.
func (u *upstream) RoundTrip(r *http.Request) (*http.Response, error) {
	if u.failure != nil {
		return nil, u.failure
	}
	a := u.route.GetRoute()
	if a.RetryPolicy == nil && len(a.RequestMirrorPolicies) == 0 {
		return u.config.send(r, u.cluster)
	}
	var body []byte
	if r.Body != nil {
		var err error
		if body, err = io.ReadAll(r.Body); err != nil {
			return nil, err
		}
	}
	for _, m := range a.RequestMirrorPolicies {
		if happens(m.GetRuntimeFraction().GetDefaultValue()) {
			u.config.mirror(withBody(r.Clone(context.WithoutCancel(r.Context())), body), m.Cluster)
		}
	}
	return u.retry(r, body, a.RetryPolicy)
}

func withBody(r *http.Request, body []byte) *http.Request {
	r.Body, r.ContentLength = http.NoBody, int64(len(body))
	if len(body) > 0 {
		r.Body = io.NopCloser(bytes.NewReader(body))
	}
	return r
}

// happens throws the dice.
func happens(share *typev3.FractionalPercent) bool {
	if share == nil {
		return true
	}
	of := map[typev3.FractionalPercent_DenominatorType]uint32{
		typev3.FractionalPercent_HUNDRED: 100, typev3.FractionalPercent_TEN_THOUSAND: 10_000, typev3.FractionalPercent_MILLION: 1_000_000,
	}[share.Denominator]
	return rand.Uint32N(of) < share.Numerator
}

// send sends a request to an endpoint of a cluster.
func (c *Config) send(r *http.Request, name string) (*http.Response, error) {
	address, err := c.endpoint(name)
	if err != nil {
		return nil, &dialError{err}
	}
	out := r.Clone(r.Context())
	out.URL.Host = address
	v, isTLS := c.clusters[name].http, c.clusters[name].tls
	isHTTP2 := v == http2 || v == downstream && r.ProtoMajor == 2
	if isTLS != nil {
		return c.sendTLS(out, isTLS, isHTTP2)
	}
	if isHTTP2 {
		return h2c.RoundTrip(out)
	}
	resp, err := plain.RoundTrip(out)
	if failed := (*net.OpError)(nil); errors.As(err, &failed) && failed.Op == "dial" {
		return nil, &dialError{err}
	}
	return resp, err
}

// dialError says that no connection to a backend was made.
type dialError struct{ error }

func (e *dialError) Unwrap() error { return e.error }

// mirrorTimeout bounds how long a copy of a request takes.
const mirrorTimeout = 15 * time.Second

// mirror sends a copy of a request, of which the response does not matter. The host says that it is one.
func (c *Config) mirror(r *http.Request, name string) {
	ctx, cancel := context.WithTimeout(r.Context(), mirrorTimeout)
	r = r.WithContext(ctx)
	r.Host += "-shadow"
	go func() {
		defer cancel()
		if resp, err := c.send(r, name); err == nil {
			_, _ = io.Copy(io.Discard, resp.Body)
			_ = resp.Body.Close()
		}
	}()
}

// What a retry policy may retry on here.
const (
	onConnect = "connect-failure"
	onEarly   = "reset-before-request"
	onReset   = "reset"
	onRefused = "refused-stream" // a kind of reset here
	onCodes   = "retriable-status-codes"
)

// checkRetry returns what of a retry policy is not served.
func checkRetry(p *routev3.RetryPolicy) error {
	if p == nil {
		return nil
	}
	for on := range strings.SplitSeq(p.RetryOn, ",") {
		if !slices.Contains([]string{onConnect, onEarly, onReset, onRefused, onCodes}, on) {
			return fmt.Errorf("retries on %s are not served here", on)
		}
	}
	return nil
}

// retry sends a request until it succeeds, or has failed as often as the policy says.
func (u *upstream) retry(r *http.Request, body []byte, p *routev3.RetryPolicy) (*http.Response, error) {
	retries := uint32(0)
	if p != nil {
		if retries = 1; p.NumRetries != nil {
			retries = p.NumRetries.Value
		}
	}
	for attempt := uint32(0); ; attempt++ {
		resp, sent, err := u.try(r, body, p)
		if attempt >= retries || !retriable(p, resp, sent, err) || r.Context().Err() != nil {
			return resp, err
		}
		if resp != nil {
			_ = resp.Body.Close()
		}
		select {
		case <-time.After(backoff(p, attempt)):
		case <-r.Context().Done():
			return nil, context.Cause(r.Context())
		}
	}
}

// try makes one attempt. sent says whether the request was sent whole.
func (u *upstream) try(r *http.Request, body []byte, p *routev3.RetryPolicy) (resp *http.Response, sent bool, err error) {
	ctx, cancel := r.Context(), context.CancelFunc(func() {})
	if t := p.GetPerTryTimeout().AsDuration(); t > 0 {
		ctx, cancel = context.WithTimeout(ctx, t)
	}
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{WroteRequest: func(i httptrace.WroteRequestInfo) { sent = i.Err == nil }})
	resp, err = u.config.send(withBody(r.Clone(ctx), body), u.cluster)
	if err != nil {
		cancel()
		return nil, sent, err
	}
	if resp.StatusCode == http.StatusSwitchingProtocols { // its body is the connection
		context.AfterFunc(r.Context(), cancel)
		return resp, sent, nil
	}
	resp.Body = &cancelled{resp.Body, cancel}
	return resp, sent, nil
}

// cancelled is the body of a response whose context ends with it.
type cancelled struct {
	io.ReadCloser
	cancel context.CancelFunc
}

func (c *cancelled) Close() error {
	defer c.cancel()
	return c.ReadCloser.Close()
}

func retriable(p *routev3.RetryPolicy, resp *http.Response, sent bool, err error) bool {
	on := strings.Split(p.GetRetryOn(), ",")
	if err == nil {
		return slices.Contains(on, onCodes) && slices.Contains(p.RetriableStatusCodes, uint32(resp.StatusCode))
	}
	if dial := (*dialError)(nil); errors.As(err, &dial) {
		return slices.Contains(on, onConnect)
	}
	return slices.Contains(on, onReset) || !sent && slices.Contains(on, onEarly)
}

// backoff grows from attempt to attempt; Envoy's own begins with 25 ms, and grows tenfold at most.
func backoff(p *routev3.RetryPolicy, attempt uint32) time.Duration {
	base, longest := 25*time.Millisecond, 250*time.Millisecond
	if b := p.GetRetryBackOff(); b != nil {
		base = b.BaseInterval.AsDuration()
		if longest = 10 * base; b.MaxInterval != nil {
			longest = b.MaxInterval.AsDuration()
		}
	}
	return rand.N(min(base<<min(attempt+1, 16), longest) + 1)
}
