// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package envoy

import (
	"cmp"
	"slices"
	"strings"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"

	"github.com/skep-operator/skep/resources/domain/expression"
)

// CheckRegex returns why a regular expression is not written: Envoy could not compile it, for which it uses RE2, or it is too large.
func CheckRegex(text string) error { return expression.Check(text) }

// checkRegexes returns why a regular expression of a route is not written.
func (r *Route) checkRegexes() error {
	matches := []Match{r.Path}
	for _, m := range slices.Concat(r.Headers, r.Queries) {
		matches = append(matches, m.Match)
	}
	if r.CORS != nil {
		matches = append(matches, r.CORS.Origins...)
	}
	for _, m := range matches {
		if m.Kind == Regex {
			if err := CheckRegex(m.Value); err != nil {
				return err
			}
		}
	}
	return nil
}

// matchKey is equal for routes that match the same requests.
type matchKey struct {
	method, path, headers, queries string
	scheme                         string // that a redirect is to, where it is for the requests of other schemes alone
	fallback                       bool
}

// size is the length of its texts.
func (k matchKey) size() int { return len(k.method) + len(k.path) + len(k.headers) + len(k.queries) }

// sortedMatches are matches in the order of their text.
func sortedMatches(all []NamedMatch) []NamedMatch {
	return slices.SortedStableFunc(slices.Values(all), func(a, b NamedMatch) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Value, b.Value))
	})
}

func textOf(m Match) string { return string(rune('0'+m.Kind)) + m.Value }

func textsOf(all []NamedMatch) string {
	var b strings.Builder
	for _, m := range sortedMatches(all) {
		b.WriteString(m.Name + "\x00" + textOf(m.Match) + "\x00")
	}
	return b.String()
}

// normalPath is the path match as Envoy gets it: prefixes are without their last slash.
func (r *Route) normalPath() Match {
	switch p := r.Path; {
	case p.Kind == Any:
		return Match{Prefix, "/"}
	case p.Kind == Prefix && p.Value != "/":
		return Match{Prefix, strings.TrimSuffix(p.Value, "/")}
	default:
		return p
	}
}

func (r *Route) key() matchKey {
	return matchKey{
		method: strings.ToUpper(r.Method), path: textOf(r.normalPath()), headers: textsOf(r.Headers), queries: textsOf(r.Queries), fallback: r.Fallback,
	}
}

// comparePrecedence sorts routes: the most specific first, fallbacks last.
func comparePrecedence(a, b *Route) int {
	if a.Fallback != b.Fallback {
		if a.Fallback {
			return 1
		}
		return -1
	}
	length := func(r *Route, kind MatchKind) int {
		if p := r.normalPath(); p.Kind == kind {
			return len(p.Value)
		}
		return 0
	}
	return cmp.Or(
		cmp.Compare(length(b, Exact), length(a, Exact)),
		cmp.Compare(length(b, Regex), length(a, Regex)),
		cmp.Compare(length(b, Prefix), length(a, Prefix)),
		compareMethods(a.Method, b.Method),
		cmp.Compare(len(b.Headers), len(a.Headers)), // what is added is added to all routes of the host with the same method
		cmp.Compare(len(b.Queries), len(a.Queries)),
	)
}

// compareMethods sorts names of methods, those without one last.
func compareMethods(a, b string) int {
	if (a == "") != (b == "") {
		return cmp.Compare(len(b), len(a))
	}
	return cmp.Compare(strings.ToUpper(a), strings.ToUpper(b))
}

// match returns the match of a route. oneLabel is a wildcard host of which requests may replace one label only, "" for
// other hosts.
func (r *Route) match(oneLabel string) *routev3.RouteMatch {
	m := &routev3.RouteMatch{}
	switch p := r.normalPath(); {
	case p.Kind == Exact:
		m.PathSpecifier = &routev3.RouteMatch_Path{Path: p.Value}
	case p.Kind == Regex:
		m.PathSpecifier = &routev3.RouteMatch_SafeRegex{SafeRegex: &matcherv3.RegexMatcher{Regex: p.Value}}
	case p.Value == "/":
		m.PathSpecifier = &routev3.RouteMatch_Prefix{Prefix: p.Value}
	default:
		m.PathSpecifier = &routev3.RouteMatch_PathSeparatedPrefix{PathSeparatedPrefix: p.Value}
	}
	if rest, ok := strings.CutPrefix(oneLabel, "*."); ok {
		labels := strings.ReplaceAll(rest, ".", "[.]")
		m.Headers = append(m.Headers, headerMatcher(NamedMatch{":authority", Match{Regex, "(?i)^[^.]+[.]" + labels + "(:[0-9]*)?$"}}))
	}
	for _, h := range sortedMatches(r.Headers) {
		m.Headers = append(m.Headers, headerMatcher(h))
	}
	if r.Method != "" {
		m.Headers = append(m.Headers, headerMatcher(NamedMatch{":method", Match{Exact, strings.ToUpper(r.Method)}}))
	}
	for _, q := range sortedMatches(r.Queries) {
		matcher := &routev3.QueryParameterMatcher{Name: q.Name}
		if s := stringMatcher(q.Match); s != nil {
			matcher.QueryParameterMatchSpecifier = &routev3.QueryParameterMatcher_StringMatch{StringMatch: s}
		}
		m.QueryParameters = append(m.QueryParameters, matcher)
	}
	return m
}

func headerMatcher(h NamedMatch) *routev3.HeaderMatcher {
	matcher := &routev3.HeaderMatcher{Name: h.Name}
	if s := stringMatcher(h.Match); s != nil {
		matcher.HeaderMatchSpecifier = &routev3.HeaderMatcher_StringMatch{StringMatch: s}
	}
	return matcher
}

// stringMatcher is nil for any value.
func stringMatcher(m Match) *matcherv3.StringMatcher {
	switch {
	case m.Kind == Exact && m.Value != "":
		return &matcherv3.StringMatcher{MatchPattern: &matcherv3.StringMatcher_Exact{Exact: m.Value}}
	case m.Kind == Prefix:
		return &matcherv3.StringMatcher{MatchPattern: &matcherv3.StringMatcher_Prefix{Prefix: m.Value}}
	case m.Kind == Regex:
		return &matcherv3.StringMatcher{MatchPattern: &matcherv3.StringMatcher_SafeRegex{SafeRegex: &matcherv3.RegexMatcher{Regex: m.Value}}}
	}
	return nil
}
