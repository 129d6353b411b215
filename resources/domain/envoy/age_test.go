// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package envoy

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/skep-operator/skep/runtime/seedtest"
)

// GW-62; number 1.2 of the contract's tenants.md: an expression of a younger namespace does not have requests for a path of an older one.
func TestExpressionsByAge(t *testing.T) {
	for name, test := range map[string]struct {
		older, younger []*Route
		asks           map[string]string // the backend, by path
		joined         map[string]string // without the option
	}{
		"an expression": {
			[]*Route{older.route(Prefix, "/")}, []*Route{younger.route(Regex, "/.*"), younger.route(Prefix, "/b"), younger.route(Exact, "/c")},
			map[string]string{"/x": "aa:s", "/b": "bb:s", "/c": "bb:s"}, map[string]string{"/x": "bb:s"},
		},
		"a method of gRPC": {
			[]*Route{older.route(Prefix, "/pay.Api/")}, []*Route{younger.route(Regex, "/.+/Charge")},
			map[string]string{"/pay.Api/Charge": "aa:s", "/x.Api/Charge": "bb:s"}, map[string]string{"/pay.Api/Charge": "bb:s"},
		},
		"a longer expression": {
			[]*Route{older.route(Regex, "/a.*")}, []*Route{younger.route(Regex, "/a.*.*.*"), younger.route(Exact, "/a/x")},
			map[string]string{"/a/b": "aa:s", "/a/x": "bb:s"}, map[string]string{"/a/b": "bb:s"},
		},
		"the owner's own": {
			[]*Route{older.route(Prefix, "/"), older.route(Regex, "/a.*")}, []*Route{younger.route(Prefix, "/a")},
			map[string]string{"/a/b": "aa:s", "/b": "aa:s"}, nil,
		},
	} {
		t.Run(name, func(t *testing.T) {
			for _, byAge := range []bool{true, false} {
				o, want := options, test.joined
				if o.FirstWins, o.ByAge = true, byAge; byAge {
					want = test.asks
				}
				_, c := translate(t, Model{HTTP: []Listener{{Hostname: "shop.test", Port: 80, Routes: slices.Concat(test.older, test.younger)}}}, o)
				got := map[string]string{}
				for path := range want {
					got[path] = strings.TrimSuffix(request(c, false, "shop.test", path).To, ":80")
				}
				if len(want) > 0 && cmp.Diff(want, got) != "" {
					t.Errorf("by age %t: %s", byAge, cmp.Diff(want, got))
				}
			}
		})
	}
}

// GW-62, for random routes of three namespaces: what an order by age is, and that it changes nothing of one namespace.
func TestOrdersByAge(t *testing.T) {
	n := 5_000
	if testing.Short() || seedtest.RaceEnabled {
		n = 500
	}
	r := random{rand.New(rand.NewPCG(seedtest.Seed(t), 1))}
	namespaces := []string{"cc", "aa", "bb"}
	for i := range n {
		var routes []*Route
		for range 1 + r.IntN(12) {
			one := tenant{namespace: pick(r, namespaces[:1+r.IntN(3)]...)}.route(pick(r, Exact, Prefix, Prefix, Regex), pick(r, "/", "/a", "/a/b", "/b", "/a/b/c", "/ab"))
			for h := range r.IntN(3) {
				one.Headers = append(one.Headers, NamedMatch{fmt.Sprint("h", h), Match{Exact, pick(r, "1", "2")}})
			}
			routes = append(routes, one)
		}
		var h hostRoutes
		for _, one := range routes {
			h.routes = append(h.routes, ranked{Route: one})
		}
		ages := h.ages()
		slices.SortStableFunc(routes, comparePrecedence)
		sorted := slices.Clone(routes)
		sortByAge(sorted, ages)
		if len(ages) == 1 && !slices.Equal(routes, sorted) {
			t.Fatalf("%d: the order of one namespace changes", i)
		}
		place := map[*Route]int{}
		for at, one := range sorted {
			place[one] = at
		}
		age := func(of *Route) int { return ages[of.Source.Namespace] }
		has := func(wide, narrow *Route) bool { return isWithin(narrow.normalPath(), wide.normalPath()) }
		for at, a := range routes {
			for _, b := range routes[at+1:] { // a goes before b by precedence alone
				kinds := [2]MatchKind{a.normalPath().Kind, b.normalPath().Kind}
				why := ""
				switch {
				case kinds[0] == Exact:
					why = "an exact path goes first"
				case kinds == [2]MatchKind{Prefix, Prefix} && has(b, a):
					why = "a prefix goes before the wider one"
				case kinds[0] == Regex && age(a) <= age(b) && kinds[1] == Regex:
					why = "expressions go by age"
				case kinds == [2]MatchKind{Regex, Prefix} && age(a) <= age(b) && !slices.ContainsFunc(routes, func(e *Route) bool { return age(e) < age(a) && has(e, b) }):
					why = "an expression goes before the prefixes of younger ones"
				}
				if why != "" && place[a] > place[b] {
					t.Fatalf("%d: %s: %+v, %+v", i, why, a, b)
				}
				if kinds[0] == Regex && age(a) > age(b) && place[a] < place[b] {
					t.Fatalf("%d: an expression goes after all of older namespaces: %+v, %+v", i, a, b)
				}
			}
		}
	}
}

// isWithin reports whether a prefix has all requests of another one.
func isWithin(narrow, wide Match) bool {
	return wide.Kind == Prefix && narrow.Kind == Prefix && (wide.Value == "/" || narrow.Value == wide.Value || strings.HasPrefix(narrow.Value, wide.Value+"/"))
}
