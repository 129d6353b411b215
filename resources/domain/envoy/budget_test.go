// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package envoy

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"
)

// ENV-40: what could not be written is not translated, whatever it is multiplied by.
func TestTooMuchIsNotTranslated(t *testing.T) {
	routes := func(n int, edit func(*Route)) (all []*Route) {
		for i := range n {
			r := &Route{Path: Match{Exact, fmt.Sprint("/", i)}, Backends: []Backend{{Name: Name{"a", "s"}, Port: "80"}}}
			edit(r)
			all = append(all, r)
		}
		return all
	}
	plain := func(*Route) {}
	var hosts, certificates Model
	shared := routes(2000, plain)
	for i := range 8000 {
		host := fmt.Sprintf("h%d.example.com", i)
		hosts.HTTP = append(hosts.HTTP, Listener{Hostname: host, Port: 443, TLS: true, ForceHTTPS: true, Secrets: []Name{{"a", "s"}}, Routes: shared})
		certificates.HTTP = append(certificates.HTTP, Listener{Hostname: host, Port: 443, TLS: true, Secrets: []Name{{"a", fmt.Sprint("s", i)}}, Routes: shared[:1]})
	}
	manyNames := NamedRoutes{Hostnames: strings.Split(strings.Repeat("x.example.com ", 8000), " ")}
	for _, r := range shared[:128] {
		manyNames.Routes = append(manyNames.Routes, *r)
	}
	var many []Name
	for i := range 200_000 {
		many = append(many, Name{"a", fmt.Sprint("s", i)})
	}
	fits := time.Duration(1<<63 - 1)
	for range 3 {
		began := time.Now()
		if _, err := new(Translator).Translate(Model{HTTP: []Listener{{Port: 80, Routes: routes(8000, plain)}}}, Options{Service: Name{"a", "lb"}}); err != nil {
			t.Fatal(err)
		}
		fits = min(fits, time.Since(began))
	}
	for name, m := range map[string]Model{
		"routes at many hosts":   hosts,
		"many certificates":      certificates,
		"names of routes":        {HTTP: []Listener{{Port: 80, Named: []NamedRoutes{manyNames}}}},
		"certificates of a host": {HTTP: []Listener{{Hostname: "a.example.com", Port: 443, TLS: true, Secrets: many, Routes: shared[:1]}}},
		"edits of headers": {HTTP: []Listener{{Port: 80, Routes: routes(2000, func(r *Route) {
			r.RequestHeaders = &HeaderEdit{Set: []Header{{"a", strings.Repeat("v", 4000)}}}
		})}}},
		"origins of CORS": {HTTP: []Listener{{Port: 80, Routes: routes(200, func(r *Route) {
			r.CORS = &CORS{}
			for i := range 64 {
				r.CORS.Origins = append(r.CORS.Origins, Match{Exact, fmt.Sprintf("https://%0240d", i)})
			}
		})}}},
		"headers of CORS": {HTTP: []Listener{{Port: 80, Routes: routes(200, func(r *Route) {
			r.CORS = &CORS{Origins: []Match{{Kind: Any}}, RequestHeaders: slices.Repeat([]string{strings.Repeat("h", 256)}, 63)}
		})}}},
		"removed headers": {HTTP: []Listener{{Port: 80, Routes: routes(200, func(r *Route) {
			r.RequestHeaders = &HeaderEdit{Remove: slices.Repeat([]string{strings.Repeat("h", 16_000)}, 16)}
		})}}},
		"removed headers of backends": {HTTP: []Listener{{Port: 80, Routes: routes(200, func(r *Route) {
			r.Backends[0].ResponseHeaders = &HeaderEdit{Remove: slices.Repeat([]string{strings.Repeat("h", 16_000)}, 16)}
		})}}},
		"paths":         {HTTP: []Listener{{Port: 80, Routes: routes(2000, func(r *Route) { r.Rewrite = &Rewrite{CompletePath: new("/" + strings.Repeat("p", 4000))} })}}},
		"new locations": {HTTP: []Listener{{Port: 80, Routes: routes(2000, func(r *Route) { r.Redirect = &Redirect{PrefixPath: new("/" + strings.Repeat("p", 4000))} })}}},
		"codes":         {HTTP: []Listener{{Port: 80, Routes: routes(200, func(r *Route) { r.Retry = &Retry{Codes: slices.Repeat([]uint32{503}, 10_000)} })}}},
		"filters of others": {HTTP: []Listener{{Port: 80, Routes: routes(2000, func(r *Route) {
			r.Source.Namespace = fmt.Sprint("n", r.Path.Value)
			r.Auth = askAt(r.Path.Value)
		})}}},
		"headers of filters": {HTTP: []Listener{{Port: 80, Routes: routes(100, func(r *Route) {
			r.Source.Namespace = fmt.Sprint("n", r.Path.Value)
			r.Auth = askAt(r.Path.Value)
			r.Auth.RequestHeaders = slices.Repeat([]string{strings.Repeat("h", 200)}, 64)
			for i := range r.Auth.RequestHeaders {
				r.Auth.RequestHeaders[i] += fmt.Sprint(i)
			}
			for range 3 {
				r.Auth.ResponseHeaders = append(r.Auth.ResponseHeaders, r.Auth.RequestHeaders...)
			}
		})}}},
		"backends": {HTTP: []Listener{{Port: 80, Routes: routes(2000, func(r *Route) {
			for i := range 200 {
				r.Backends = append(r.Backends, Backend{Name: Name{"a", fmt.Sprint("s", i)}, Port: "80"})
			}
		})}}},
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		began := time.Now()
		_, err := new(Translator).Translate(m, Options{Service: Name{"a", "lb"}})
		tooLarge := new(TooLargeError)
		if !errors.As(err, &tooLarge) || !tooLarge.AtLeast || tooLarge.Size <= MaxSize {
			t.Errorf("%s: %v", name, err)
		}
		if took := time.Since(began); took > 20*fits {
			t.Errorf("%s: it took %s; what fits took %s", name, took, fits)
		}
		runtime.ReadMemStats(&after)
		if mib := (after.TotalAlloc - before.TotalAlloc) >> 20; mib > 200 {
			t.Errorf("%s: it needed %d MiB", name, mib)
		}
	}
	service := Service{Name: Name{"a", "s"}}
	for i := range 40_000 {
		service.Ports = append(service.Ports, uint32(i+1))
	}
	if _, err := service.Translate(Connections{}); !errors.As(err, new(*TooLargeError)) {
		t.Errorf("ports of a Service: %v", err)
	}
}

// ENV-40: the bound is above all that can be written: what is larger than an object may be, and not twice as large, has its size.
func TestSizesNearTheLimitAreKnown(t *testing.T) {
	for _, n := range []int{8000, 10_000} {
		var all []*Route
		for i := range n {
			all = append(all, &Route{Path: Match{Exact, fmt.Sprintf("/%0*d", 60, i)}, Backends: []Backend{{Name: Name{"a", "s"}, Port: "80"}}})
		}
		result, err := new(Translator).Translate(Model{HTTP: []Listener{{Port: 80, Routes: all}}}, Options{Service: Name{"a", "lb"}})
		if err != nil {
			t.Errorf("%d routes: %v", n, err)
			continue
		}
		tooLarge := new(TooLargeError)
		if _, err = Encode(result.Spec); err != nil && (!errors.As(err, &tooLarge) || tooLarge.AtLeast) {
			t.Errorf("%d routes: %v", n, err)
		}
	}
}

// ENV-40: a route for requests that another one has is not made, whatever it has, and counts with what it matches.
func TestRoutesForTheSameRequestsAreNotMade(t *testing.T) {
	edits := &HeaderEdit{}
	for i := range 16 {
		edits.Set = append(edits.Set, Header{fmt.Sprint("h", i), strings.Repeat("v", 6000)})
	}
	service := Name{"a", "s"}
	same := NamedRoutes{Routes: []Route{{Path: Match{Exact, "/a"}, Backends: []Backend{{Name: service, Port: "80"}}}}}
	for range 120 {
		r := same.Routes[0]
		r.RequestHeaders = edits
		same.Routes = append(same.Routes, r)
	}
	long := NamedRoutes{Routes: slices.Repeat([]Route{{Path: Match{Exact, "/" + strings.Repeat("a", 1000)}}}, 120)}
	for i := range 16 {
		same.Hostnames = append(same.Hostnames, fmt.Sprintf("h%d.test", i))
		long.Hostnames = append(long.Hostnames, fmt.Sprintf("l%d.test", i))
	}
	for _, checked := range []bool{false, true} {
		o := Options{Service: service, FirstWins: true, PortHosts: true, Checked: checked}
		var m, vast Model
		for port := range 56 {
			m.HTTP = append(m.HTTP, Listener{Port: uint32(8000 + port), Named: []NamedRoutes{same}})
			vast.HTTP = append(vast.HTTP, Listener{Port: uint32(8000 + port), Named: []NamedRoutes{long}})
		}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		result, err := new(Translator).Translate(m, o)
		if err != nil {
			t.Fatal(err)
		}
		runtime.ReadMemStats(&after)
		if mib := (after.TotalAlloc - before.TotalAlloc) >> 20; mib > 200 {
			t.Errorf("it needed %d MiB", mib)
		}
		for _, r := range result.Spec.Resources {
			if strings.Contains(string(r.Raw), "vvv") {
				t.Error("a route that is not the first is written")
			}
		}
		if _, err := new(Translator).Translate(vast, o); !errors.As(err, new(*TooLargeError)) {
			t.Errorf("what is compared a hundred thousand times: %v", err)
		}
	}
}

// Where the first route for requests is not valid, the next one has them.
func TestTheFirstValidRouteHasTheRequests(t *testing.T) {
	to := func(name string) *Route {
		return &Route{Source: Name{"a", name}, Path: Match{Exact, "/a"}, Backends: []Backend{{Name: Name{"a", name}, Port: "80"}}}
	}
	bad, first, second := to("bad"), to("first"), to("second")
	bad.RequestHeaders = &HeaderEdit{Remove: []string{"Host"}}
	refused := &Route{Source: Name{"a", "refused"}, Path: Match{Exact, "/a"}, Refused: true}
	for _, firstWins := range []bool{false, true} {
		m := Model{HTTP: []Listener{{Port: 80, Hostname: "a.test", Routes: []*Route{refused, bad, first, second}}, {Port: 80, Hostname: "b.test", Routes: []*Route{refused}}}}
		result, err := new(Translator).Translate(m, Options{Service: Name{"a", "lb"}, FirstWins: firstWins})
		if err != nil {
			t.Fatal(err)
		}
		all := ""
		for _, r := range result.Spec.Resources {
			all += string(r.Raw)
		}
		if !strings.Contains(all, "a:first:80") || strings.Contains(all, "a:second:80") == firstWins || strings.Contains(all, "a:bad:80") || !strings.Contains(all, "b.test") {
			t.Errorf("first wins %t: %s", firstWins, all)
		}
		if len(result.Problems) != 1 || result.Problems[0].Source.Name != "bad" {
			t.Errorf("first wins %t: %v", firstWins, result.Problems)
		}
	}
}

// K8S-26: before more is translated it is known how much memory that needs; what is kept needs none again.
func TestTranslationsAwaitTheirTurn(t *testing.T) {
	var routes []*Route
	for i := range 1000 {
		routes = append(routes, &Route{Path: Match{Exact, fmt.Sprint("/", i)}, Backends: []Backend{{Name: Name{"a", "s"}, Port: "80"}}})
	}
	m := Model{HTTP: []Listener{{Port: 80, Hostname: "a.test", Routes: routes}, {Port: 80, Hostname: "b.test", Routes: routes}}}
	var asked []int
	o := Options{Service: Name{"a", "lb"}, Await: func(bytes int) error { asked = append(asked, bytes); return nil }}
	of := new(Translator)
	first, err := of.Translate(m, o)
	if err != nil || len(asked) != 3 || asked[0] > 1000 || asked[1] < 1_000_000 || asked[2] < 2*asked[1]*9/10 { // the filter chain, and both hosts
		t.Fatalf("%v, %v", asked, err)
	}
	if text, err := Encode(first.Spec); err != nil || first.Need < len(text.JSON)*9/10 || first.Need > len(text.JSON)*12/10 {
		t.Errorf("it has %d bytes, and needed %d, %v", len(text.JSON), first.Need, err)
	}
	asked = nil
	m.HTTP = append(m.HTTP, Listener{Port: 80, Hostname: "c.test", Routes: routes[:1]})
	if _, err := of.Translate(m, o); err != nil || len(asked) != 1 || asked[0] > 10_000 {
		t.Errorf("%v, %v", asked, err)
	}
	ended := errors.New("ended")
	o.Await = func(int) error { return ended }
	if _, err := new(Translator).Translate(m, o); !errors.Is(err, ended) {
		t.Errorf("%v", err)
	}
}

// ENV-33, ENV-30: what hosts have of a wider name is written once more for few bytes: it has no size where objects are measured alone.
func TestWhatIsWrittenOnceMoreIsBounded(t *testing.T) {
	var m Model
	claim := func(namespace string, second int) Claim {
		return Claim{Of: Name{namespace, fmt.Sprint("i", second)}, Created: time.Unix(int64(second), 0)}
	}
	to := func(by Claim, path string) []*Route {
		return []*Route{{Source: by.Of, Path: Match{Exact, path}, Backends: []Backend{{Name: Name{by.Of.Namespace, "s"}, Port: "80"}}}}
	}
	for k := range 20 { // each host is older than another part of the wildcard
		wide, host := claim("aa", 2*k), claim("bb", 2*k+1)
		path := fmt.Sprint("/", k)
		if k == 0 {
			path += strings.Repeat("a", 60_000)
		}
		m.HTTP = append(m.HTTP,
			Listener{Claim: wide, Hostname: "*.test", Port: 443, TLS: true, Secrets: []Name{{"aa", "c"}}, Routes: to(wide, path)},
			Listener{Claim: host, Hostname: fmt.Sprintf("h%d.test", k), Port: 80, Routes: to(host, "/")})
	}
	result, err := new(Translator).Translate(m, Options{Service: Name{"a", "lb"}, Owners: true, OneLabelWildcards: true})
	if err != nil {
		t.Fatal(err)
	}
	spec, err := Encode(result.Spec)
	if err != nil || len(spec.JSON) > 200_000 || len(spec.JSON) < 100_000 {
		t.Errorf("it has %d bytes, %v", len(spec.JSON), err)
	}
}
