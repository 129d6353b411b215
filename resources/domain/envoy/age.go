// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package envoy

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/skep-operator/skep/resources/domain/expression"
)

// ages are the places of the namespaces of a host's routes by age: the one of the first route has 0.
func (h *hostRoutes) ages() map[string]int {
	all := map[string]int{}
	for _, r := range h.routes {
		if _, known := all[r.Source.Namespace]; !known {
			all[r.Source.Namespace] = len(all)
		}
	}
	return all
}

// sortByAge sorts routes of several namespaces that are sorted by precedence: an expression goes after all expressions and prefixes of older namespaces.
// The order of exact paths, and that of prefixes of which one is in the other, stays.
func sortByAge(routes []*Route, ages map[string]int) {
	age := func(r *Route) int { return ages[r.Source.Namespace] }
	isYoung := func(r *Route) bool { return r.normalPath().Kind == Regex && age(r) > 0 }
	if !slices.ContainsFunc(routes, isYoung) {
		return
	}
	// Each route is in the section of its namespace, or of the oldest one that has a route which it is to go before: sections in order keep both orders.
	sections, ofPath := make(map[*Route]int, len(routes)), map[string]int{}
	for _, r := range slices.Backward(routes) { // the shortest prefixes first, of one path the last one
		at := age(r)
		if path := r.normalPath(); path.Kind == Prefix {
			if wider, found := sectionOf(path.Value, ofPath); found {
				at = min(at, wider)
			}
			ofPath[path.Value] = at
		}
		sections[r] = at
	}
	isExact := func(r *Route) bool { return r.normalPath().Kind == Exact }
	slices.SortStableFunc(routes, func(a, b *Route) int {
		if isExact(a) || isExact(b) {
			return comparePrecedence(a, b)
		}
		return cmp.Or(cmp.Compare(sections[a], sections[b]), comparePrecedence(a, b))
	})
}

// reportBehind reports expressions that get no requests, since an older namespace has a route for all of the host.
func (h *host) reportBehind(hostname string, sorted []*Route, ages map[string]int) {
	rest := (&Route{Path: Match{Prefix, "/"}}).request()
	at := slices.IndexFunc(sorted, func(r *Route) bool { return !r.Fallback && r.request() == rest })
	if at < 0 {
		return
	}
	by := sorted[at]
	for _, r := range sorted[at:] {
		if r.normalPath().Kind == Regex && ages[r.Source.Namespace] > ages[by.Source.Namespace] {
			h.problems = append(h.problems, Problem{Source: r.Source, Owner: by.Source, Message: fmt.Sprintf(
				"the expression %s has no requests of host %s: %s has all of the host, and its namespace is older there", expression.Quote(r.Path.Value), hostname, by.Source)})
		}
	}
}

// sectionOf is what the nearest of the prefixes that have all of a path's requests is in.
func sectionOf(path string, sections map[string]int) (section int, found bool) {
	for {
		if section, found = sections[path]; found || path == "/" {
			return section, found
		}
		path = cmp.Or(path[:max(0, strings.LastIndexByte(path, '/'))], "/")
	}
}
