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
