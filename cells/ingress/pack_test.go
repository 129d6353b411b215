// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package ingress

import (
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	networkingv1 "k8s.io/api/networking/v1"

	"github.com/skep-operator/skep/resources/cluster"
	"github.com/skep-operator/skep/resources/domain/envoy"
	"github.com/skep-operator/skep/resources/domain/envoy/envoytest"
	envoyres "github.com/skep-operator/skep/resources/envoy"
	"github.com/skep-operator/skep/resources/stream"
	"github.com/skep-operator/skep/resources/stream/slim"
	"github.com/skep-operator/skep/runtime/health"
	"github.com/skep-operator/skep/runtime/seedtest"
)

// packing packs the Ingresses that share a load balancer, without an API server.
type packing struct {
	t         *testing.T
	c         *controller
	ingresses *stream.Local[ingress]
	config    *envoytest.Config
	size      int
}

func newPacking(t *testing.T) *packing {
	t.Helper()
	p := &packing{t: t, ingresses: newLocal[ingress](t)}
	classes, all := newLocal[ingressClass](t), newLocal[service](t)
	p.ingresses.Replace()
	classes.Replace()
	var known []*service
	for _, namespace := range []string{"aa", "bb"} {
		s := &service{}
		s.Namespace, s.Name, s.Spec.Ports = slim.MakeString(namespace), "s", []servicePort{{Port: 80}}
		s.Trim()
		known = append(known, s)
	}
	all.Replace(known...)
	p.c = &controller{params: params{Config: defaultConfig, Cluster: cluster.DefaultConfig, Envoy: envoyres.Config{
		IngressSecretsNamespace: "cilium-secrets", ProxyIdleTimeoutSeconds: 60, ProxyStreamIdleTimeoutSeconds: 300,
	}}}
	p.c.Config.IngressDefaultLBMode = sharedMode
	p.c.reports = envoyres.NewReports("Ingress", nil, slog.New(slog.DiscardHandler), health.NewTree().Reporter("ingress"))
	for _, open := range []func() error{
		func() (err error) { p.c.ingresses, err = p.ingresses.Store(t.Context()); return err },
		func() (err error) { p.c.classes, err = classes.Store(t.Context()); return err },
		func() (err error) { p.c.services, err = all.Store(t.Context()); return err },
	} {
		if err := open(); err != nil {
			t.Fatal(err)
		}
	}
	return p
}

// pack packs these Ingresses, and no others.
func (p *packing) pack(all ...*ingress) {
	p.t.Helper()
	p.ingresses.Replace(all...)
	p.c.ingestShared()
	translated, spec, err := p.c.packShared(p.t.Context())
	if err != nil {
		p.t.Fatal(err)
	}
	if p.size = len(spec.JSON); p.size > envoy.MaxSize {
		p.t.Errorf("it has %d bytes", p.size)
	}
	if p.config, err = envoytest.Verify(translated.Spec); err != nil {
		p.t.Fatal(err)
	}
}

// serves checks that Ingresses have a route for each path of their first host.
func (p *packing) serves(what string, all ...*ingress) {
	p.t.Helper()
	for _, i := range all {
		rule := i.Spec.Rules[0]
		if n := len(routes(p.config, "insecure", rule.Host)); p.c.shared.out[i.Key()] || n != len(rule.HTTP.Paths) {
			p.t.Fatalf("%s: %s has %d routes of %d; with a limit of %d and the weights %v %d are left out", what, i.Key(), n, len(rule.HTTP.Paths), p.c.shared.limit, p.c.shared.weights, len(p.c.shared.out))
		}
	}
}

// greedy makes Ingresses.
type greedy struct{ *rand.Rand }

func (r greedy) new(namespace, name string, rules []networkingv1.IngressRule, tls []networkingv1.IngressTLS) *ingress {
	i := &ingress{}
	i.Namespace, i.Name, i.CreationTimestamp = slim.MakeString(namespace), name, slim.Time(1+r.IntN(100))
	i.Spec.IngressClassName, i.Spec.Rules, i.Spec.TLS = new(class), rules, tls
	return i
}

// pathsOf is a rule with paths of a type.
func pathsOf(host string, kind networkingv1.PathType, paths ...string) networkingv1.IngressRule {
	to := networkingv1.IngressRule{Host: host, IngressRuleValue: networkingv1.IngressRuleValue{HTTP: &networkingv1.HTTPIngressRuleValue{}}}
	for _, path := range paths {
		to.HTTP.Paths = append(to.HTTP.Paths, networkingv1.HTTPIngressPath{Path: path, PathType: &kind, Backend: networkingv1.IngressBackend{
			Service: &networkingv1.IngressServiceBackend{Name: "s", Port: networkingv1.ServiceBackendPort{Number: 80}},
		}})
	}
	return to
}

// numbered are n texts of a format.
func numbered(n int, format string) (all []string) {
	for i := range n {
		all = append(all, fmt.Sprintf(format, i))
	}
	return all
}

// fair are Ingresses that have less than half of a configuration.
func (r greedy) fair() (all []*ingress) {
	left := 100 + r.IntN(1900)
	for n := 0; left > 0; n++ {
		paths := min(left, 1+r.IntN(200))
		left -= paths
		host := fmt.Sprintf("h%d.bb.test", n)
		var tls []networkingv1.IngressTLS
		if r.IntN(2) == 0 {
			tls = []networkingv1.IngressTLS{{Hosts: []string{host}, SecretName: fmt.Sprint("c", n)}}
		}
		all = append(all, r.new("bb", fmt.Sprintf("i%02d", n), []networkingv1.IngressRule{pathsOf(host, networkingv1.PathTypePrefix, numbered(paths, "/path-%d")...)}, tls))
	}
	return all
}

// greedyKinds is how many kinds of Ingresses there are.
const greedyKinds = 11

// greedy is an Ingress that is large in one way or another. Those of one kind have hosts in common.
func (r greedy) greedy(kind, n int) *ingress {
	hosts := numbered(1+r.IntN(300), "h%d.aa.test")
	var rules []networkingv1.IngressRule
	var tls []networkingv1.IngressTLS
	secure := []networkingv1.IngressTLS{{Hosts: hosts, SecretName: "c"}}
	switch kind {
	case 0: // an expression that is too long, and no size
		rules = []networkingv1.IngressRule{pathsOf("x.test", networkingv1.PathTypeImplementationSpecific, strings.Repeat("a", 1_400_000))}
	case 1: // what is no path, at hosts with TLS
		rules, tls = []networkingv1.IngressRule{pathsOf("", networkingv1.PathTypePrefix, numbered(1000, "/"+strings.Repeat("b", r.IntN(1000))+"%d?")...)}, secure
	case 2: // long paths
		rules, tls = []networkingv1.IngressRule{pathsOf("", networkingv1.PathTypeExact, numbered(1+r.IntN(3), "/"+strings.Repeat("c", r.IntN(400_000))+"%d")...)}, secure
	case 3: // all paths at all hosts
		rules, tls = []networkingv1.IngressRule{pathsOf("", networkingv1.PathTypePrefix, numbered(1+r.IntN(200), "/%d")...)}, secure
	case 4: // paths that are one
		rules = []networkingv1.IngressRule{pathsOf("x.test", networkingv1.PathTypeExact, slices.Repeat([]string{"/"}, 1+r.IntN(10_000))...)}
	case 5: // certificates of all hosts, or one for each host: a filter chain for each has all
		rules = []networkingv1.IngressRule{pathsOf("", networkingv1.PathTypePrefix, "/")}
		for c := range 60 {
			tls = append(tls, networkingv1.IngressTLS{Hosts: numbered(250, "h%d.aa.test"), SecretName: fmt.Sprintf("all-%d-%d", n, c)})
		}
		if n%2 == 1 {
			tls = nil
			for c := range 250 {
				tls = append(tls, networkingv1.IngressTLS{Hosts: []string{fmt.Sprintf("h%d.aa.test", c)}, SecretName: fmt.Sprintf("own-%d-%d", n, c)})
			}
		}
	case 6: // hosts
		for h := range r.IntN(4000) {
			rules = append(rules, pathsOf(fmt.Sprintf("h%d-%d.aa.test", n, h), networkingv1.PathTypePrefix, "/"))
		}
	case 7: // a wildcard, which may be older than others' hosts
		rules = []networkingv1.IngressRule{pathsOf("*.test", networkingv1.PathTypeExact, numbered(2, "/"+strings.Repeat("d", r.IntN(300_000))+"%d")...)}
		tls = []networkingv1.IngressTLS{{Hosts: []string{"*.test"}, SecretName: "c"}}
	case 8: // much that is left out beside what is not
		rules = []networkingv1.IngressRule{pathsOf("x.test", networkingv1.PathTypeImplementationSpecific, append(numbered(100, strings.Repeat("e", 9000)+"%d"), numbered(r.IntN(3000), "/e/%d")...)...)}
	case 9: // paths that are one, at hosts with TLS and at the one without
		rules, tls = []networkingv1.IngressRule{pathsOf("", networkingv1.PathTypePrefix, slices.Repeat([]string{"/"}, 1+r.IntN(17_000))...)}, []networkingv1.IngressTLS{{Hosts: hosts[:min(len(hosts), 5)], SecretName: "c"}}
	default:
		rules = []networkingv1.IngressRule{pathsOf(fmt.Sprintf("h%d.aa.test", n), networkingv1.PathTypePrefix, numbered(r.IntN(3000), "/f/%d")...)}
	}
	return r.new("aa", fmt.Sprintf("g%d-%d", kind, n), rules, tls)
}

// ING-23, ENV-30, ENV-40; K3 of the contract's tenants.md: whatever Ingresses of one namespace have, those of another one that have less than half of a configuration are served, and
// once the others are gone all are.
func TestOthersThatFitAreServed(t *testing.T) {
	n := greedyKinds + 4
	switch {
	case seedtest.Soak():
		n = 300
	case testing.Short() || seedtest.RaceEnabled:
		n = 3
	}
	r := greedy{rand.New(rand.NewPCG(seedtest.Seed(t), 6))}
	for i := range n {
		p, fair := newPacking(t), r.fair()
		p.pack(fair...)
		p.serves("alone", fair...)
		if p.size > envoy.MaxSize*42/100 {
			continue
		}
		var others []*ingress
		what := "one of each"
		if i < greedyKinds {
			what = fmt.Sprint("two and more of kind ", i)
			for j := range 2 + r.IntN(3) {
				others = append(others, r.greedy(i, j))
			}
		} else {
			for kind := range greedyKinds {
				others = append(others, r.greedy(kind, r.IntN(2)))
			}
		}
		p.pack(append(slices.Clone(fair), others...)...)
		p.serves(what, fair...)
		r.Shuffle(len(others), func(a, b int) { others[a], others[b] = others[b], others[a] })
		p.pack(append(slices.Clone(fair), others[1:]...)...)
		p.serves(what+", without one", fair...)
		p.pack(fair...)
		p.serves(what+", gone", fair...)
		if len(p.c.shared.out) > 0 || p.c.shared.limit != 0 {
			t.Errorf("%s: once they are gone %d are left out, with a limit of %d", what, len(p.c.shared.out), p.c.shared.limit)
		}
	}
}

// inOneGoroutine skips a test that has no other: the race detector finds nothing in it, and takes ten times as long.
func inOneGoroutine(t *testing.T) {
	t.Helper()
	if seedtest.RaceEnabled {
		t.Skip("it has one goroutine")
	}
}

// ING-23: what was left out for what is gone is served, whichever sizes they had.
func TestTheLimitIsNotKept(t *testing.T) {
	inOneGoroutine(t)
	p, r := newPacking(t), greedy{rand.New(rand.NewPCG(1, 2))}
	of := func(namespace, name string, paths int) *ingress {
		return r.new(namespace, name, []networkingv1.IngressRule{pathsOf(name+"."+namespace+".test", networkingv1.PathTypePrefix, numbered(paths, "/path-%d")...)}, nil)
	}
	first, second, third := of("bb", "first", 4500), of("bb", "second", 4500), of("aa", "third", 5000)
	p.pack(first, second, third)
	if len(p.c.shared.out) == 0 {
		t.Fatal("all fit")
	}
	p.c.shared.limit = 1000 // of which nothing is known any more
	p.pack(first, second)
	p.serves("with a limit of long ago", first, second)
}

// ENV-30: what others left out is tried anew if one of them is smaller or gone, and not because one changes: a tenant would have all translated anew at each change.
func TestALimitIsKeptWhileNothingIsSmaller(t *testing.T) {
	inOneGoroutine(t)
	p, r := newPacking(t), greedy{rand.New(rand.NewPCG(1, 4))}
	of := func(name string, generation int64, paths int) *ingress {
		i := r.new("aa", name, []networkingv1.IngressRule{pathsOf(name+".aa.test", networkingv1.PathTypePrefix, numbered(paths, "/path-%d")...)}, nil)
		i.Generation, i.CreationTimestamp = generation, slim.Time(len(name))
		return i
	}
	first, other := of("i", 1, 4500), of("iiiii", 1, 1)
	p.pack(first, other, of("ii", 1, 4500), of("iii", 1, 4500), of("iiii", 1, 4500))
	limit, weights := p.c.shared.limit, maps.Clone(p.c.shared.weights)
	if limit == 0 {
		t.Fatal("all fit")
	}
	for generation := range int64(3) {
		p.pack(first, other, of("ii", 1, 4500), of("iii", 1, 4500), of("iiii", 2+generation, 4500+int(generation)))
		if p.c.shared.limit != limit || !maps.Equal(p.c.shared.weights, weights) {
			t.Errorf("after a change the limit is %d, with the weights %v; it was %d, with %v", p.c.shared.limit, p.c.shared.weights, limit, weights)
		}
	}
	p.c.shared.limit = 1000 // of which nothing is known any more
	p.pack(first, other, of("ii", 1, 4500), of("iii", 1, 100), of("iiii", 9, 100))
	p.serves("with a limit of long ago", first, other, of("ii", 1, 4500))

	now := time.Unix(1000, 0)
	p.c.shared.out = nil
	if p.c.shared.rest(now, now.Add(time.Second)); p.c.shared.pause != now.Add(time.Second+sharedPause) {
		t.Errorf("where all fit, the next one begins at %s", p.c.shared.pause)
	}
	p.c.shared.out = map[slim.Key]bool{first.Key(): true}
	if p.c.shared.rest(now, now.Add(time.Second)); p.c.shared.pause != now.Add(time.Second+mostPause) {
		t.Errorf("where something is left out, the next one begins at %s", p.c.shared.pause)
	}
}

// ENV-30, ENV-40: what is written of many places is little, and what has them counts them: what others have that fits is not left out for it.
func TestPlacesHaveASize(t *testing.T) {
	inOneGoroutine(t)
	p, r := newPacking(t), greedy{rand.New(rand.NewPCG(1, 5))}
	all := r.fair()
	for n := len(all); p.size < envoy.MaxSize*40/100; n++ {
		host := fmt.Sprintf("i%d.bb.test", n)
		all = append(all, r.new("bb", fmt.Sprint("more-", n), []networkingv1.IngressRule{pathsOf(host, networkingv1.PathTypePrefix, numbered(100, "/path-%d")...)}, nil))
		p.pack(all...)
	}
	fair := slices.Clone(all)
	for n := range 20 {
		host := fmt.Sprintf("p%d.aa.test", n)
		all = append(all, r.new("aa", fmt.Sprint("places-", n), []networkingv1.IngressRule{pathsOf(host, networkingv1.PathTypePrefix, slices.Repeat([]string{"/"}, envoy.MostPlaces/40-5)...)},
			[]networkingv1.IngressTLS{{Hosts: []string{host}, SecretName: "c"}}))
	}
	begin := time.Now()
	p.pack(all...)
	p.serves("beside many places", fair...)
	if passed := time.Since(begin); passed > time.Minute && !seedtest.RaceEnabled { // two to three
		t.Errorf("it was packed in %s", passed)
	}
}

// ING-14, ENV-31: what Envoy would refuse has no size, and is kept nowhere; its host is there, and the Ingress has notices.
func TestWhatIsRefusedIsNotKept(t *testing.T) {
	paths := append(numbered(5, strings.Repeat("a", 100_000)+"%d"), "/")
	i := greedy{rand.New(rand.NewPCG(1, 3))}.new("aa", "web", []networkingv1.IngressRule{
		pathsOf("a.test", networkingv1.PathTypeImplementationSpecific, paths...), pathsOf("b.test", networkingv1.PathTypePrefix, "/?"),
	}, []networkingv1.IngressTLS{{Hosts: []string{"a.test", "b.test"}, SecretName: "c"}})
	p := newPacking(t)
	p.pack(i)
	e := p.c.shared.ingested[i.Key()]
	for _, l := range e.model.HTTP {
		for _, r := range l.Routes {
			if len(r.Path.Value) > 10 {
				t.Errorf("host %s keeps a path of %d bytes", l.Hostname, len(r.Path.Value))
			}
		}
	}
	if len(e.notices) != 2 { // paths that begin with the same are one
		t.Errorf("it has %d notices", len(e.notices))
	}
	for _, n := range e.notices {
		if n.Reason != "NotTranslated" || len(n.Message) > 1000 {
			t.Errorf("%s: %.1000s", n.Reason, n.Message)
		}
	}
	for host, want := range map[string]int{"a.test": 1, "b.test": 0} {
		for _, table := range []string{"insecure", "secure"} {
			v := slices.IndexFunc(p.config.Tables["listener-"+table].VirtualHosts, func(v *routev3.VirtualHost) bool { return v.Name == host })
			if v < 0 || len(p.config.Tables["listener-"+table].VirtualHosts[v].Routes) != want {
				t.Errorf("%s %s: host %d", table, host, v)
			}
		}
	}
}

// ING-31: what the hosts of an Ingress have where it is left out is part of its size: a wider name of another namespace would answer for them.
func TestNamesHaveASize(t *testing.T) {
	p := newPacking(t)
	var rules []networkingv1.IngressRule
	for n := range 100 {
		rules = append(rules, pathsOf(fmt.Sprintf("h%d.test", n), networkingv1.PathTypePrefix, "/"))
	}
	i := greedy{rand.New(rand.NewPCG(1, 4))}.new("aa", "many", rules, nil)
	p.pack(i)
	if _, err := p.c.measure(p.c.sharedOptions()); err != nil {
		t.Fatal(err)
	}
	if e := p.c.shared.ingested[i.Key()]; e.names < 2000 || e.size < e.names+5000 {
		t.Errorf("it has %d bytes, and its names %d", e.size, e.names)
	}
}
