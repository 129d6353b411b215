// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package envoy

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protojson"

	"github.com/skep-operator/skep/runtime/seedtest"
)

// written is the size of what a route becomes at a host, each part with a comma.
func written(t *testing.T, r *Route, o Options) (size, parts int) {
	t.Helper()
	for _, to := range o.routes(r, "") {
		text, err := protojson.Marshal(to)
		if err == nil {
			text, err = canonical(text)
		}
		if err != nil {
			t.Fatal(err)
		}
		size, parts = size+len(text)+1, parts+1
	}
	return size, parts
}

func (r random) text(most int) string {
	if r.IntN(3) > 0 {
		return fmt.Sprint("x-", r.IntN(100))
	}
	return strings.Repeat(pick(r, "a", "ab", "%", `\`, `"`, "é", "\x01", "\t", "%REQ(a)%", "<", "\u2028"), 1+r.IntN(most))
}

func (r random) list(most int) (all []string) {
	for range r.IntN(most) {
		all = append(all, r.text(50))
	}
	return all
}

func (r random) edits() *HeaderEdit {
	if r.IntN(2) == 0 {
		return nil
	}
	e := &HeaderEdit{Remove: r.list(4)}
	for range r.IntN(3) {
		e.Add = append(e.Add, Header{r.text(9), r.text(200)})
	}
	for range r.IntN(3) {
		e.Set = append(e.Set, Header{r.text(9), pick(r, "", r.text(200))})
	}
	return e
}

func (r random) cors() *CORS {
	c := &CORS{Credentials: r.IntN(2) == 0, Methods: r.list(3), RequestHeaders: r.list(9), ResponseHeaders: r.list(9), MaxAge: uint32(r.IntN(3) * 100)}
	if r.IntN(4) == 0 {
		c.ResponseHeaders = append(c.ResponseHeaders, "*")
	}
	for range 1 + r.IntN(9) {
		c.Origins = append(c.Origins, Match{pick(r, Exact, Exact, Regex), r.text(60)})
	}
	if r.IntN(3) == 0 {
		c.Origins = append(c.Origins, Match{Kind: Any})
	}
	return c
}

// path is a path to replace another one with, by its prefix or as a whole, if any.
func (r random) path() (prefix, complete *string) {
	switch r.IntN(3) {
	case 0:
		return new(pick(r, "", "/", "/new/"+r.text(50))), nil
	case 1:
		return nil, new("/" + r.text(50))
	}
	return nil, nil
}

// full is a route that may have anything.
func (r random) full() *Route {
	to := r.route(Name{"a", "r"})
	if r.IntN(3) == 0 {
		to.Path.Value += r.text(100)
	}
	to.Headers = append(to.Headers, NamedMatch{"x-c", Match{Exact, pick(r, "", r.text(100))}})
	to.Queries = append(to.Queries, NamedMatch{r.text(20), Match{Exact, r.text(100)}})
	to.Lost = uint64(r.IntN(3))
	to.RequestHeaders, to.ResponseHeaders = r.edits(), r.edits()
	for i := range to.Backends {
		to.Backends[i].RequestHeaders, to.Backends[i].ResponseHeaders = r.edits(), r.edits()
	}
	if r.IntN(3) == 0 {
		to.Retry = &Retry{Attempts: new(uint32(r.IntN(20))), Backoff: time.Duration(r.IntN(2)) * time.Second}
		for range r.IntN(9) {
			to.Retry.Codes = append(to.Retry.Codes, 500+uint32(r.IntN(100)))
		}
	}
	if r.IntN(3) == 0 {
		to.BackendTimeout = new(time.Duration(r.IntN(3)) * time.Second)
	}
	if r.IntN(2) == 0 {
		to.CORS = r.cors()
	}
	if r.IntN(3) == 0 {
		to.Redirect = &Redirect{Scheme: pick(r, "", "https"), Host: pick(r, "", r.text(60)), Port: uint32(r.IntN(2) * 8080), Code: pick(r, 0, 302, 307)}
		to.Redirect.PrefixPath, to.Redirect.CompletePath = r.path()
	} else {
		to.Redirect = nil
	}
	if r.IntN(3) == 0 {
		to.Rewrite = &Rewrite{Host: pick(r, "", r.text(60))}
		to.Rewrite.PrefixPath, to.Rewrite.CompletePath = r.path()
	}
	return to
}

// ENV-40: the sizes by which work ends, and by which namespaces share a configuration, are those of what is written, whatever a route has.
func TestSizesAreOfWhatIsWritten(t *testing.T) {
	n := 3000
	if seedtest.Soak() {
		n = 300_000
	}
	r := random{rand.New(rand.NewPCG(seedtest.Seed(t), 2))}
	for i := range n {
		route, o := r.full(), Options{RedirectsByScheme: r.IntN(2) == 0}
		real, parts := written(t, route, o)
		sized := SizeOf([]Route{*route}, o)
		size, largest := sized.Total, sized.Largest
		if parts != sized.Routes {
			t.Fatalf("%d: it becomes %d routes, not %+v", i, parts, sized)
		}
		if slack := real/20 + 40*parts; size < real-slack || size > real+slack || largest != size {
			t.Fatalf("%d: %d bytes are written in %d parts, and %d are expected: %+v", i, real, parts, size, route)
		}
	}
}

// Routes with parts in common are not read again for each, and count all the same.
func TestSizesOfManyRoutes(t *testing.T) {
	r := random{rand.New(rand.NewPCG(seedtest.Seed(t), 3))}
	for range 300 {
		var all []Route
		want, most := 0, 0
		for range 1 + r.IntN(4) {
			one := *r.full()
			for range 1 + r.IntN(4) {
				one.Path = Match{Exact, "/" + r.text(100)}
				size := SizeOf([]Route{one}, Options{}).Total
				all, want, most = append(all, one), want+size, max(most, size)
			}
		}
		if is := SizeOf(all, Options{}); is.Total != want || is.Largest != most {
			t.Fatalf("%+v, not %d and %d", is, want, most)
		}
	}
}

// wholeRoutes are routes that have everything between them, with nothing that is nil or empty where a value is written.
func wholeRoutes() []Route {
	backend := func(name string) Backend {
		return Backend{
			Name: Name{"ns", name}, Port: "80", Weight: new(uint32(1)), AppProtocol: "http", RequestHeaders: wholeEdit(), ResponseHeaders: wholeEdit(),
			TLS: &UpstreamTLS{ServerName: "s", Authority: Name{"a", "b"}, Names: []SubjectAltName{{Value: "v"}}},
		}
	}
	whole := func(edit func(*Route)) Route {
		r := Route{
			Source: Name{"ns", "r"}, Path: Match{Prefix, "/p"}, Headers: []NamedMatch{{"h", Match{Exact, "v"}}}, Queries: []NamedMatch{{"q", Match{Exact, "v"}}}, Method: "GET",
			Backends: []Backend{backend("s1"), backend("s2")}, Lost: 1, Mirrors: []Mirror{{Backend: backend("m")}},
			Rewrite: &Rewrite{Host: "h", PrefixPath: new("/x")}, RequestTimeout: new(time.Second), BackendTimeout: new(time.Second),
			RequestHeaders: wholeEdit(), ResponseHeaders: wholeEdit(),
			Retry: &Retry{Attempts: new(uint32(1)), Codes: []uint32{503}, Backoff: time.Second},
			CORS: &CORS{
				Origins: []Match{{Exact, "o"}}, Methods: []string{"GET"}, RequestHeaders: []string{"x"}, ResponseHeaders: []string{"y"}, MaxAge: 5,
			},
			Auth: &ExternalAuth{Server: backend("auth"), Path: "/a", RequestHeaders: []string{"x"}, ResponseHeaders: []string{"y"}},
		}
		edit(&r)
		return r
	}
	return []Route{
		whole(func(*Route) {}),
		whole(func(r *Route) { r.Rewrite = &Rewrite{CompletePath: new("/x")} }),
		whole(func(r *Route) { r.Redirect = &Redirect{Scheme: "https", Host: "h", PrefixPath: new("/x")} }),
		whole(func(r *Route) { r.Redirect = &Redirect{CompletePath: new("/x")} }),
	}
}

func wholeEdit() *HeaderEdit {
	return &HeaderEdit{Add: []Header{{"a", "b"}}, Set: []Header{{"c", "d"}}, Remove: []string{"e"}}
}

// lengthened calls do with each text longer than before, and each list with more items, and its name.
func lengthened(v reflect.Value, name string, do func(name string)) {
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			lengthened(v.Elem(), name, do)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if f := v.Type().Field(i); f.IsExported() {
				lengthened(v.Field(i), name+"."+f.Name, do)
			}
		}
	case reflect.String:
		was := v.String()
		v.SetString(was + strings.Repeat("x", 1000))
		do(name)
		v.SetString(was)
	case reflect.Slice:
		was := v.Interface()
		more := reflect.MakeSlice(v.Type(), 0, 0)
		for range 100 {
			more = reflect.AppendSlice(more, reflect.ValueOf(was))
		}
		v.Set(more)
		do(name)
		v.Set(reflect.ValueOf(was))
		for i := range v.Len() {
			lengthened(v.Index(i), fmt.Sprintf("%s[%d]", name, i), do)
		}
	}
}

// ENV-40: each field that is written counts as often as it is. A field that is added to the model is found here.
func TestSizeHasEachField(t *testing.T) {
	seen := 0
	for _, r := range wholeRoutes() {
		before, _ := written(t, &r, Options{})
		sizeBefore := r.size(Options{})
		lengthened(reflect.ValueOf(&r), "Route", func(name string) {
			after, _ := written(t, &r, Options{})
			real, size := after-before, r.size(Options{})-sizeBefore
			if seen++; size < real*9/10 || size > real*11/10+20 {
				t.Errorf("%s: %d bytes more are written, and %d are expected", name, real, size)
			}
		})
	}
	if seen < 200 {
		t.Errorf("%d fields are looked at", seen)
	}
	auth := wholeRoutes()[0].Auth
	auth.Server = Backend{}
	for _, grpc := range []bool{false, true} {
		auth.GRPC = grpc
		text, err := encode(auth.config())
		if err != nil {
			t.Fatal(err)
		}
		before, sizeBefore := len(text), auth.size()
		lengthened(reflect.ValueOf(auth), "ExternalAuth", func(name string) {
			text, err := encode(auth.config())
			if err != nil {
				t.Fatal(err)
			}
			if real, size := len(text)-before, auth.size()-sizeBefore; size < real*9/10 && !strings.Contains(name, "Server") {
				t.Errorf("%s: %d bytes more are written, and %d are expected", name, real, size)
			}
		})
	}
}

// The routes of a host are spent with what all of them have, and with what the host adds to each.
func TestSizesOfHosts(t *testing.T) {
	r := random{rand.New(rand.NewPCG(seedtest.Seed(t), 4))}
	for i := range 300 {
		o := Options{Service: Name{"a", "s"}, FirstWins: true, PortHosts: true, OneLabelWildcards: r.IntN(2) == 0, RedirectsByScheme: r.IntN(2) == 0}
		var m Model
		for port := range 1 + r.IntN(2) {
			var routes []*Route
			for j := range 1 + r.IntN(5) {
				one := r.full()
				one.Path = Match{Exact, fmt.Sprint("/", j)}
				if r.IntN(3) == 0 {
					one.Auth = askAt("/" + strings.Repeat("a", r.IntN(400)))
				}
				if one.Check(0) == nil {
					routes = append(routes, one)
				}
			}
			m.HTTP = append(m.HTTP, Listener{Hostname: pick(r, "a.test", "*.test"), Port: uint32(80 + port), Routes: routes})
		}
		o.auths, _ = m.auths()
		for key, h := range (part{m, listenerName, secureTable, true}).tables(o, o.auths.names()) {
			real, err := o.translateHost(key, h, mostTranslated)
			if err != nil {
				t.Fatal(err)
			}
			const enough = 1 << 30
			left := budget(enough)
			if err := left.spendHost(o, key.hostname, h); err != nil {
				t.Fatal(err)
			}
			if size := int(enough - left); len(real.json) > size*11/10+1000 || size > len(real.json)*11/10+300 {
				t.Fatalf("%d: %d bytes are written, and %d are expected: %.5000s", i, len(real.json), size, real.json)
			}
			if _, err := budget(len(real.json)*2/3-500).checkHost(o, key.hostname, h); err == nil && len(real.json) > 2000 {
				t.Errorf("%d: with too little left the host is translated", i)
			}
		}
	}
}

// ENV-40: work ends at the bound also where sizes would not foresee it.
func TestWorkEndsAtTheBound(t *testing.T) {
	var routes []*Route
	for i := range 100 {
		routes = append(routes, &Route{Path: Match{Exact, fmt.Sprint("/", i, strings.Repeat("x", 1000))}, Redirect: &Redirect{Host: "a"}})
	}
	h := &hostRoutes{domains: []string{"a.test"}, routes: slices.Collect(func(yield func(ranked) bool) {
		for _, r := range routes {
			if !yield(ranked{Route: r}) {
				return
			}
		}
	})}
	key := hostKey{table: plainTable, hostname: "a.test"}
	if _, err := (Options{}).translateHost(key, h, 50_000); err == nil {
		t.Error("a host of 100 kB is translated with 50 kB left")
	}
	if _, err := (Options{}).translateHost(key, h, 120_000); err != nil {
		t.Error(err)
	}
}
