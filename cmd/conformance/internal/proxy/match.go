// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package proxy

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"regexp"
	"strings"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
)

// table is a route table.
type table struct {
	hosts      []*host
	ignorePort bool
}

// host is a virtual host.
type host struct {
	domains []string
	routes  []*route
}

// route is a route with what its matches need.
type route struct {
	*routev3.Route
	path    func(string) bool
	headers []headerMatch
	queries []queryMatch
}

type headerMatch struct {
	*routev3.HeaderMatcher
	value func(string) bool // nil for any
}

type queryMatch struct {
	name  string
	value func(string) bool // nil for any
}

func newTable(from *routev3.RouteConfiguration) (*table, error) {
	t := &table{ignorePort: from.IgnorePortInHostMatching}
	var errs []error
	for _, v := range from.VirtualHosts {
		h := &host{domains: v.Domains}
		for _, r := range v.Routes {
			one, err := newRoute(r)
			errs = append(errs, err)
			h.routes = append(h.routes, one)
		}
		t.hosts = append(t.hosts, h)
	}
	return t, errors.Join(errs...)
}

func newRoute(from *routev3.Route) (r *route, err error) {
	r = &route{Route: from}
	m := from.Match
	switch {
	case m.GetPath() != "":
		r.path = func(path string) bool { return path == m.GetPath() }
	case m.GetPathSeparatedPrefix() != "":
		prefix := m.GetPathSeparatedPrefix()
		r.path = func(path string) bool { return path == prefix || strings.HasPrefix(path, prefix+"/") }
	case m.GetPrefix() != "":
		r.path = func(path string) bool { return strings.HasPrefix(path, m.GetPrefix()) }
	case m.GetSafeRegex() != nil:
		if r.path, err = full(m.GetSafeRegex()); err != nil {
			return nil, err
		}
	default:
		return nil, fmt.Errorf("the match of the path %v is not served here", m.PathSpecifier)
	}
	for _, h := range m.Headers {
		value, err := newString(h.GetStringMatch())
		if err != nil {
			return nil, err
		}
		r.headers = append(r.headers, headerMatch{h, value})
	}
	for _, q := range m.QueryParameters {
		value, err := newString(q.GetStringMatch())
		if err != nil {
			return nil, err
		}
		r.queries = append(r.queries, queryMatch{q.Name, value})
	}
	return r, checkRetry(from.GetRoute().GetRetryPolicy())
}

// newString is nil for any value.
func newString(m *matcherv3.StringMatcher) (func(string) bool, error) {
	if m == nil {
		return nil, nil
	}
	fold := func(s string) string { return s }
	if m.IgnoreCase {
		fold = strings.ToLower
	}
	switch p := m.MatchPattern.(type) {
	case *matcherv3.StringMatcher_Exact:
		return func(s string) bool { return fold(s) == fold(p.Exact) }, nil
	case *matcherv3.StringMatcher_Prefix:
		return func(s string) bool { return strings.HasPrefix(fold(s), fold(p.Prefix)) }, nil
	case *matcherv3.StringMatcher_Suffix:
		return func(s string) bool { return strings.HasSuffix(fold(s), fold(p.Suffix)) }, nil
	case *matcherv3.StringMatcher_Contains:
		return func(s string) bool { return strings.Contains(fold(s), fold(p.Contains)) }, nil
	case *matcherv3.StringMatcher_SafeRegex:
		return full(p.SafeRegex)
	}
	return nil, fmt.Errorf("the match %v of a text is not served here", m)
}

// full matches whole values, as Envoy's regular expressions do.
func full(m *matcherv3.RegexMatcher) (func(string) bool, error) {
	re, err := regexp.Compile("^(?:" + m.Regex + ")$")
	if err != nil {
		return nil, err
	}
	return re.MatchString, nil
}

// find returns the route for a request, nil for none. Only the best of the virtual hosts counts: one that has the host as it
// is, that with the longest suffix, that with the longest prefix, that of all.
func (t *table) find(r *http.Request) *route {
	name := strings.ToLower(r.Host)
	if host, _, err := net.SplitHostPort(name); err == nil && t.ignorePort {
		name = host
	}
	var best *host
	score := -1
	for _, h := range t.hosts {
		for _, d := range h.domains {
			if s := scoreOf(strings.ToLower(d), name); s > score {
				best, score = h, s
			}
		}
	}
	if best == nil {
		return nil
	}
	for _, one := range best.routes {
		if one.matches(r) {
			return one
		}
	}
	return nil
}

// scoreOf is how well a domain matches a host, -1 if it does not.
func scoreOf(domain, host string) int {
	const exact, suffix, prefix = 1 << 22, 1 << 21, 1 << 20 // names are shorter
	switch {
	case domain == "*":
		return 0
	case domain == host:
		return exact
	case strings.HasPrefix(domain, "*") && len(host) >= len(domain) && strings.HasSuffix(host, domain[1:]):
		return suffix + len(domain)
	case strings.HasSuffix(domain, "*") && len(host) >= len(domain) && strings.HasPrefix(host, domain[:len(domain)-1]):
		return prefix + len(domain)
	}
	return -1
}

// pathOf is the path of a request as it was sent, and its query with the question mark.
func pathOf(r *http.Request) (path, query string) {
	target := r.RequestURI
	if rest, ok := strings.CutPrefix(target, "http://"); ok { // as it is sent to proxies
		_, rest, _ = strings.Cut(rest, "/")
		target = "/" + rest
	}
	path, query, ok := strings.Cut(target, "?")
	if ok {
		query = "?" + query
	}
	return path, query
}

func (r *route) matches(req *http.Request) bool {
	path, query := pathOf(req)
	if !r.path(path) {
		return false
	}
	for _, h := range r.headers {
		if !h.matches(req) {
			return false
		}
	}
	for _, q := range r.queries {
		if !q.matches(strings.TrimPrefix(query, "?")) {
			return false
		}
	}
	return true
}

func (h headerMatch) matches(r *http.Request) bool {
	value, exists := "", true
	switch name := strings.ToLower(h.Name); name {
	case ":method":
		value = r.Method
	case ":authority", "host":
		value = r.Host
	default:
		all := r.Header.Values(name)
		value, exists = strings.Join(all, ","), len(all) > 0
	}
	if h.value == nil {
		return exists != h.InvertMatch
	}
	if !exists && !h.TreatMissingHeaderAsEmpty {
		return false // whether it is inverted or not
	}
	return h.value(value) != h.InvertMatch
}

// matches compares the first value of a parameter.
func (q queryMatch) matches(query string) bool {
	for pair := range strings.SplitSeq(query, "&") {
		name, value, _ := strings.Cut(pair, "=")
		if decoded, err := url.QueryUnescape(name); err != nil || decoded != q.name {
			continue
		}
		decoded, err := url.QueryUnescape(value)
		return err == nil && (q.value == nil || q.value(decoded))
	}
	return false
}
