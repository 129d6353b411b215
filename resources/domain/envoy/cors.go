// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package envoy

import (
	"slices"
	"strconv"
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
)

// CORS says which pages of other origins may use a route. It becomes routes and headers: the proxies of agents up to 1.19
// lack Envoy's filter for it, and refuse a listener that has it.
type CORS struct {
	// Origins are those that are allowed, in lower case; one of the kind Any allows all.
	Origins     []Match
	Credentials bool
	// Methods, RequestHeaders and ResponseHeaders are names; "*" stands for all.
	Methods, RequestHeaders, ResponseHeaders []string
	MaxAge                                   uint32 // of answers to preflight requests, in seconds; 0 has none told
}

// uniform reports whether one route has the headers of all responses: of those without an origin it adds no header that depends on it.
func (c *CORS) uniform() bool { return c.all() && !c.Credentials }

// all reports whether all origins are allowed.
func (c *CORS) all() bool {
	return slices.ContainsFunc(c.Origins, func(m Match) bool { return m.Kind == Any })
}

// routes returns the routes that serve a route, of which the first one that matches counts. With CORS they answer its preflight
// requests, of origins that are not allowed first; then serve requests of other origins, and last those of allowed ones.
func (r *Route) routes(oneLabel string) (all []*routev3.Route) {
	if r.CORS == nil {
		return append(r.lost(oneLabel), r.route(oneLabel))
	}
	others := r.CORS.others()
	if !r.CORS.all() {
		all = append(all, r.preflight(oneLabel, 403, others, []*corev3.HeaderValueOption{varyOrigin()}))
	}
	all = append(all, r.preflight(oneLabel, 204, nil, r.CORS.preflightHeaders()))
	all = append(all, r.lost(oneLabel)...)
	if !r.CORS.uniform() {
		other := r.route(oneLabel)
		other.Match.Headers = append(other.Match.Headers, others...)
		other.ResponseHeadersToAdd = append(other.ResponseHeadersToAdd, varyOrigin())
		all = append(all, other)
	}
	allowed := r.route(oneLabel)
	allowed.ResponseHeadersToAdd = append(allowed.ResponseHeadersToAdd, r.CORS.headers()...)
	return append(all, allowed)
}

// preflight answers the preflight requests for what a route matches, if origin matches, too.
func (r *Route) preflight(oneLabel string, status uint32, origin []*routev3.HeaderMatcher, headers []*corev3.HeaderValueOption) *routev3.Route {
	asked := *r
	asked.Method = "OPTIONS"
	m := asked.match(oneLabel)
	method := NamedMatch{Name: "access-control-request-method"}
	if r.Method != "" {
		method.Match = Match{Exact, strings.ToUpper(r.Method)}
	}
	m.Headers = append(m.Headers, headerMatcher(NamedMatch{Name: "origin"}), headerMatcher(method))
	m.Headers = append(m.Headers, origin...)
	return &routev3.Route{Match: m, Action: directResponse(status), ResponseHeadersToAdd: headers}
}

// others match requests of origins that are not allowed, and those without an origin. Envoy knows no alternatives of
// headers, but that each of several does not match.
func (c *CORS) others() (all []*routev3.HeaderMatcher) {
	if c.all() {
		absent := headerMatcher(NamedMatch{Name: "origin"})
		absent.InvertMatch = true
		return []*routev3.HeaderMatcher{absent}
	}
	for _, m := range c.Origins {
		other := headerMatcher(NamedMatch{"origin", m})
		other.InvertMatch, other.TreatMissingHeaderAsEmpty = true, true
		all = append(all, other)
	}
	return all
}

// headers are those of responses to allowed origins. They name the origin also where all are allowed, as Envoy's filter does: a request may have
// credentials that it is not known to have.
func (c *CORS) headers() (all []*corev3.HeaderValueOption) {
	all = append(all, header("access-control-allow-origin", requestHeader("origin")), varyOrigin())
	if c.Credentials {
		all = append(all, header("access-control-allow-credentials", "true"))
	}
	if names := names(c.ResponseHeaders); names != "" && !(names == "*" && c.Credentials) { // * has no meaning with credentials
		all = append(all, header("access-control-expose-headers", names))
	}
	return all
}

// preflightHeaders are those of answers to preflight requests of allowed origins.
func (c *CORS) preflightHeaders() []*corev3.HeaderValueOption {
	all := c.headers()
	for _, list := range []struct {
		name  string
		names []string
		asked string
	}{
		{"access-control-allow-methods", c.Methods, "access-control-request-method"},
		{"access-control-allow-headers", c.RequestHeaders, "access-control-request-headers"},
	} {
		switch names := names(list.names); {
		case names == "*" && c.Credentials: // browsers take * for a name then
			all = append(all, header(list.name, requestHeader(list.asked)))
		case names != "":
			all = append(all, header(list.name, names))
		}
	}
	if c.MaxAge > 0 {
		all = append(all, header("access-control-max-age", strconv.FormatUint(uint64(c.MaxAge), 10)))
	}
	return all
}

// names is a list of names as a header has it; a percent sign, which names of headers may have, is one.
func names(all []string) string {
	if slices.Contains(all, "*") {
		return "*"
	}
	return strings.ReplaceAll(strings.Join(all, ", "), "%", "%%")
}

// requestHeader is the value of a header of the request. A header that would be empty is not added.
func requestHeader(name string) string { return "%REQ(" + name + ")%" }

// header sets a header, in place of the backend's.
func header(name, value string) *corev3.HeaderValueOption {
	return &corev3.HeaderValueOption{
		Header:       &corev3.HeaderValue{Key: name, Value: value},
		AppendAction: corev3.HeaderValueOption_OVERWRITE_IF_EXISTS_OR_ADD,
	}
}

// varyOrigin tells caches that a response depends on the origin.
func varyOrigin() *corev3.HeaderValueOption {
	return &corev3.HeaderValueOption{Header: &corev3.HeaderValue{Key: "vary", Value: "Origin"}}
}
