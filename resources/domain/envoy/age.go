// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package envoy

import (
	"cmp"
	"slices"
	"strings"
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

// sectionOf is what the nearest of the prefixes that have all of a path's requests is in.
func sectionOf(path string, sections map[string]int) (section int, found bool) {
	for {
		if section, found = sections[path]; found || path == "/" {
			return section, found
		}
		path = cmp.Or(path[:max(0, strings.LastIndexByte(path, '/'))], "/")
	}
}
