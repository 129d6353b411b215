// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package envoy

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"

	"github.com/skep-operator/skep/resources/domain/expression"
)

// checkRegexes returns why a regular expression of a route is not written: Envoy could not compile it, for which it uses RE2, or its program would be larger than Envoy takes
// (ENV-23).
func (r *Route) checkRegexes(mostProgram int64) error {
	for text := range r.regexes {
		if err := expression.CheckProgram(text, mostProgram); err != nil {
			return err
		}
	}
	for _, prefix := range r.newPrefixes() {
		if regex := r.prefixRegex(prefix); regex != nil {
			if err := expression.CheckProgram(regex.Pattern.Regex, mostProgram); err != nil {
				return fmt.Errorf("the path is replaced by a regular expression: %w", err)
			}
		}
	}
	return nil
}

// HasRegexes reports whether a regular expression is written for a route, beside that of a host.
func (r *Route) HasRegexes() bool {
	for range r.regexes {
		return true
	}
	return len(r.newPrefixes()) > 0
}

// regexes are the regular expressions that a route has.
func (r *Route) regexes(yield func(string) bool) {
	is := func(m Match) bool { return m.Kind != Regex || yield(m.Value) }
	if !is(r.Path) {
		return
	}
	for _, m := range slices.Concat(r.Headers, r.Queries) {
		if !is(m.Match) {
			return
		}
	}
	if r.CORS == nil {
		return
	}
	for _, m := range r.CORS.Origins {
		if !is(m) {
			return
		}
	}
}

// newPrefixes are what replaces the prefix of a path.
func (r *Route) newPrefixes() (all []string) {
	if r.Rewrite != nil && r.Rewrite.PrefixPath != nil {
		all = append(all, *r.Rewrite.PrefixPath)
	}
	if r.Redirect != nil && r.Redirect.PrefixPath != nil {
		all = append(all, *r.Redirect.PrefixPath)
	}
	return all
}

// CheckHost returns why Envoy refuses the routes of a host of which a wildcard stands for one label: the regular expression for that would be too large (ENV-23). mostProgram is as in
// [Route.Check].
func CheckHost(name string, mostProgram int64) error {
	if rest, is := strings.CutPrefix(name, "*."); is && mostProgram > 0 {
		return expression.CheckProgram(oneLabelRegex(rest), mostProgram)
	}
	return nil
}

// oneLabelRegex matches an authority with one label before the rest.
func oneLabelRegex(rest string) string {
	return "(?i)^[^.]+[.]" + strings.ReplaceAll(rest, ".", "[.]") + "(:[0-9]*)?$"
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
		m.Headers = append(m.Headers, headerMatcher(NamedMatch{":authority", Match{Regex, oneLabelRegex(rest)}}))
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
