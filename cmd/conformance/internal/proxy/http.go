// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package proxy

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strconv"
	"strings"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
)

// serveHTTP serves a request by the route table of its connection.
func (l *Listener) serveHTTP(w http.ResponseWriter, r *http.Request) {
	c := l.config.Load()
	t := c.tables[r.Context().Value(chainKey{}).(*chain).table]
	if t == nil {
		reply(w, r, http.StatusNotFound, "")
		return
	}
	r.Header.Set("X-Forwarded-Proto", "http") // as Envoy does with use_remote_address, whatever the client has sent
	if r.TLS != nil {
		r.Header.Set("X-Forwarded-Proto", "https")
	}
	found := t.find(r)
	switch {
	case found == nil:
		reply(w, r, http.StatusNotFound, "")
	case found.GetRedirect() != nil:
		location, err := found.location(r)
		if err == nil {
			w.Header().Set("Location", location)
		}
		found.respond(w, r, redirectCodes[found.GetRedirect().ResponseCode], "", err)
	case found.GetDirectResponse() != nil:
		d := found.GetDirectResponse()
		found.respond(w, r, int(d.Status), d.GetBody().GetInlineString(), nil)
	default:
		c.forward(w, r, found)
	}
}

// respond answers in place of a backend.
func (r *route) respond(w http.ResponseWriter, req *http.Request, code int, body string, err error) {
	if err = errors.Join(err, edit(w.Header(), r.ResponseHeadersToAdd, r.ResponseHeadersToRemove, req)); err != nil {
		code, body = http.StatusInternalServerError, err.Error()
	}
	reply(w, req, code, body)
}

// reply answers, for gRPC with the status that Envoy has for a code of HTTP.
func reply(w http.ResponseWriter, r *http.Request, code int, body string) {
	if !isGRPC(r) {
		w.WriteHeader(code)
		_, _ = w.Write([]byte(body))
		return
	}
	w.Header().Set("Content-Type", "application/grpc")
	w.Header().Set("Grpc-Status", strconv.Itoa(grpcStatus(code)))
	if body != "" {
		w.Header().Set("Grpc-Message", url.PathEscape(body))
	}
	w.WriteHeader(http.StatusOK)
}

func isGRPC(r *http.Request) bool {
	kind := r.Header.Get("Content-Type")
	return kind == "application/grpc" || strings.HasPrefix(kind, "application/grpc+")
}

func grpcStatus(code int) int {
	const unknown, permissionDenied, unimplemented, internal, unavailable, unauthenticated = 2, 7, 12, 13, 14, 16
	switch code {
	case http.StatusBadRequest:
		return internal
	case http.StatusUnauthorized:
		return unauthenticated
	case http.StatusForbidden:
		return permissionDenied
	case http.StatusNotFound:
		return unimplemented
	case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return unavailable
	}
	return unknown
}

var redirectCodes = map[routev3.RedirectAction_RedirectResponseCode]int{
	routev3.RedirectAction_MOVED_PERMANENTLY:  http.StatusMovedPermanently,
	routev3.RedirectAction_FOUND:              http.StatusFound,
	routev3.RedirectAction_SEE_OTHER:          http.StatusSeeOther,
	routev3.RedirectAction_TEMPORARY_REDIRECT: http.StatusTemporaryRedirect,
	routev3.RedirectAction_PERMANENT_REDIRECT: http.StatusPermanentRedirect,
}

func schemeOf(r *http.Request) string {
	if r.TLS != nil {
		return "https"
	}
	return "http"
}

// location is where a request is redirected to.
func (r *route) location(req *http.Request) (string, error) {
	to := r.GetRedirect()
	scheme := schemeOf(req)
	switch {
	case to.GetHttpsRedirect():
		scheme = "https"
	case to.GetSchemeRedirect() != "":
		scheme = to.GetSchemeRedirect()
	}
	port := ""
	if to.PortRedirect != 0 {
		port = ":" + strconv.Itoa(int(to.PortRedirect))
	}
	host := to.HostRedirect
	if host == "" {
		host = hostOf(req, scheme, port)
	}
	path, query := pathOf(req)
	switch {
	case to.GetPathRedirect() != "":
		if path = to.GetPathRedirect(); strings.Contains(path, "?") {
			query = ""
		}
	case to.GetPrefixRewrite() != "":
		path = to.GetPrefixRewrite() + strings.TrimPrefix(path, r.matched(path))
	case to.GetRegexRewrite() != nil:
		var err error
		if path, err = rewrite(to.GetRegexRewrite(), path); err != nil {
			return "", err
		}
	}
	return scheme + "://" + host + port + path + query, nil
}

// hostOf is the host of a request, without a port that is replaced or was that of the scheme before.
func hostOf(r *http.Request, scheme, port string) string {
	name, own, err := net.SplitHostPort(r.Host)
	if err != nil {
		return r.Host
	}
	was := schemeOf(r)
	isDefault := was == "http" && own == "80" || was == "https" && own == "443"
	if port == "" && (scheme == was || !isDefault) {
		return r.Host
	}
	if strings.Contains(name, ":") {
		return "[" + name + "]"
	}
	return name
}

// target is a cluster of a route, with what is edited for it alone.
type target struct {
	cluster                       string
	requestAdd, responseAdd       []*corev3.HeaderValueOption
	requestRemove, responseRemove []string
}

// target chooses the cluster for a request.
func (r *route) target() target {
	a := r.GetRoute()
	if a.GetWeightedClusters() == nil {
		return target{cluster: a.GetCluster()}
	}
	var all []weighted
	for _, w := range a.GetWeightedClusters().Clusters {
		all = append(all, weighted{w.Name, w.Weight.GetValue()})
	}
	w := a.GetWeightedClusters().Clusters[choose(all)]
	return target{w.Name, w.RequestHeadersToAdd, w.ResponseHeadersToAdd, w.RequestHeadersToRemove, w.ResponseHeadersToRemove}
}

// defaultTimeout is that of a route that has none, and no longest duration either.
const defaultTimeout = 15 * time.Second

func (r *route) timeout() time.Duration {
	a := r.GetRoute()
	switch {
	case a.Timeout != nil:
		return a.Timeout.AsDuration()
	case a.MaxStreamDuration != nil:
		return a.MaxStreamDuration.GetMaxStreamDuration().AsDuration()
	}
	return defaultTimeout
}

// forward sends a request to a backend, and its response back.
func (c *Config) forward(w http.ResponseWriter, req *http.Request, r *route) {
	if t := r.timeout(); t > 0 {
		ctx, cancel := context.WithTimeout(req.Context(), t)
		defer cancel()
		req = req.WithContext(ctx)
	}
	to := r.target()
	u := &upstream{config: c, route: r, cluster: to.cluster}
	p := &httputil.ReverseProxy{
		FlushInterval: -1,
		Transport:     u,
		Rewrite:       func(out *httputil.ProxyRequest) { u.failure = r.rewriteRequest(out, to) },
		ModifyResponse: func(resp *http.Response) error {
			return errors.Join(
				edit(resp.Header, to.responseAdd, to.responseRemove, req),
				edit(resp.Header, r.ResponseHeadersToAdd, r.ResponseHeadersToRemove, req),
			)
		},
		ErrorHandler: func(w http.ResponseWriter, req *http.Request, err error) {
			switch {
			case u.failure != nil, errors.Is(err, errFormat):
				reply(w, req, http.StatusInternalServerError, err.Error())
			case errors.Is(err, context.DeadlineExceeded):
				reply(w, req, http.StatusGatewayTimeout, "upstream request timeout")
			default:
				reply(w, req, http.StatusServiceUnavailable, err.Error())
			}
		},
	}
	p.ServeHTTP(w, req)
}

// rewriteRequest makes the request for the backend.
func (r *route) rewriteRequest(p *httputil.ProxyRequest, to target) error {
	path, query := pathOf(p.In)
	a := r.GetRoute()
	switch {
	case a.PrefixRewrite != "":
		path = a.PrefixRewrite + strings.TrimPrefix(path, r.matched(path))
	case a.RegexRewrite != nil:
		var err error
		if path, err = rewrite(a.RegexRewrite, path); err != nil {
			return err
		}
	}
	u, err := url.ParseRequestURI(path)
	if err != nil {
		return fmt.Errorf("the path of the request: %w", err)
	}
	u.Scheme, u.Host, u.RawQuery = "http", to.cluster, strings.TrimPrefix(query, "?")
	u.ForceQuery = query == "?"
	p.Out.URL = u
	if p.Out.Host = p.In.Host; a.GetHostRewriteLiteral() != "" {
		p.Out.Host = a.GetHostRewriteLiteral()
	}
	if client, _, err := net.SplitHostPort(p.In.RemoteAddr); err == nil {
		p.Out.Header["X-Forwarded-For"] = append(p.In.Header["X-Forwarded-For"], client)
	}
	p.Out.Header.Set("X-Forwarded-Proto", schemeOf(p.In))
	return errors.Join(
		edit(p.Out.Header, to.requestAdd, to.requestRemove, p.In),
		edit(p.Out.Header, r.RequestHeadersToAdd, r.RequestHeadersToRemove, p.In),
	)
}
