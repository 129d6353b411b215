// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package envoy

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	tcpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/tcp_proxy/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	httpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/upstreams/http/v3"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/skep-operator/skep/resources/domain/envoy/envoytest"
	"github.com/skep-operator/skep/runtime/seedtest"
)

// random makes models.
type random struct{ *rand.Rand }

func pick[T any](r random, all ...T) T { return all[r.IntN(len(all))] }

func (r random) host() string {
	return pick(r, "", "a.example.com", "b.example.com", "c.example.com", "*.example.com", "*.b.example.com")
}

func (r random) backends() (all []Backend) {
	for range r.IntN(4) {
		b := to(pick(r, "s1", "s2", "x/s1", "x/s3"), pick(r, "80", "8080", "web"))[0]
		if b.Port == "8080" && r.IntN(2) == 0 { // one of a port; others of it may pass TLS through
			b.TLS = tlsOf(b)
		}
		if r.IntN(4) == 0 {
			b.Weight = new(uint32(r.IntN(3)))
		}
		all = append(all, b)
	}
	return all
}

// tlsOf is the TLS of a backend, which its name decides about.
func tlsOf(b Backend) *UpstreamTLS {
	t := &UpstreamTLS{ServerName: b.Name.Name + ".example.com", Authority: Name{b.Namespace, "ca"}}
	if b.Name.Name == "s1" {
		t.Names = []SubjectAltName{{Value: "*.example.org"}, {IsURI: true, Value: "spiffe://" + b.Namespace}}
	}
	return t
}

func (r random) route(source Name) *Route {
	to := &Route{Source: source, Backends: r.backends()}
	to.Path = pick(r, Match{}, Match{Prefix, "/"}, Match{Prefix, "/a"}, Match{Prefix, "/a/"}, Match{Prefix, "/a/b"}, Match{Exact, "/a"}, Match{Exact, "/b"}, Match{Regex, "/a.*"}, Match{Regex, "/[0-9]+"})
	to.Method = pick(r, "", "", "", "GET", "get", "POST", "PUT")
	for range r.IntN(6) / 3 {
		to.Headers = append(to.Headers, NamedMatch{pick(r, "x-a", "x-b"), Match{pick(r, Exact, Prefix, Regex), pick(r, "1", "2")}})
	}
	if r.IntN(5) == 0 {
		to.Queries = []NamedMatch{{"q", Match{Exact, pick(r, "1", "2")}}}
	}
	to.Fallback = r.IntN(10) == 0
	to.GRPC = r.IntN(10) == 0
	if r.IntN(10) == 0 {
		to.Redirect = &Redirect{Host: pick(r, "r1", "r2")}
	}
	if r.IntN(6) == 0 {
		to.RequestTimeout = new(time.Duration(r.IntN(3)) * time.Second)
	}
	if r.IntN(8) == 0 {
		to.NoBackend = 503
	}
	if r.IntN(8) == 0 {
		to.Mirrors = []Mirror{{Backend: Backend{Name: Name{"m", "mirror"}, Port: "80"}}}
	}
	return to
}

// of is the part of a model that one object has.
func (r random) of(source Name) (m Model) {
	for range r.IntN(4) {
		l := Listener{Hostname: r.host(), Port: 80, Exclusive: r.IntN(4) == 0}
		for range r.IntN(5) {
			if one := r.route(source); r.IntN(8) == 0 && !one.Fallback {
				l.Named = append(l.Named, NamedRoutes{[]string{pick(r, "a.example.com", "d.example.com")}, []Route{*one}})
			} else {
				l.Routes = append(l.Routes, one)
			}
		}
		m.HTTP = append(m.HTTP, l)
		if r.IntN(2) == 0 {
			l.Port, l.TLS, l.ForceHTTPS = 443, true, r.IntN(2) == 0
			for range r.IntN(3) {
				l.Secrets = append(l.Secrets, Name{pick(r, "n1", "n2"), pick(r, "t1", "t2")})
			}
			m.HTTP = append(m.HTTP, l)
		}
	}
	for range r.IntN(8) / 6 {
		m.Passthrough = append(m.Passthrough, Passthrough{Source: source, Port: 443, Hostnames: []string{pick(r, "a.example.com", "p.example.com", "q.example.com", "*.example.com")}, Backends: r.backends()})
	}
	return m
}

func join(all []Model) (m Model) {
	for _, one := range all {
		m.HTTP = append(m.HTTP, one.HTTP...)
		m.Passthrough = append(m.Passthrough, one.Passthrough...)
	}
	return m
}

// shown is what a configuration shows of an expectation.
func shown(t *testing.T, c *envoytest.Config) *expectation {
	t.Helper()
	e := &expectation{ports: c.Spec.Services[0].Ports}
	for table, short := range map[string]string{plainTable: "plain", secureTable: "secure"} {
		for _, v := range c.Tables[table].GetVirtualHosts() {
			for _, r := range v.Routes {
				e.routes = append(e.routes, fmt.Sprintf("%s %s | %s → %s", short, v.Name, shownMatch(r.Match), shownAction(r)))
			}
		}
	}
	for _, chain := range c.Listeners[listenerName].FilterChains {
		text := fmt.Sprint(chain.FilterChainMatch.TransportProtocol, " ", chain.FilterChainMatch.ServerNames, " ")
		tcp := &tcpv3.TcpProxy{}
		var packed *anypb.Any
		if len(chain.Filters) > 0 {
			packed = chain.Filters[0].GetTypedConfig()
		}
		switch {
		case packed == nil:
			text += "backends "
		case packed.MessageIs(tcp):
			unpack(t, packed, tcp)
			text += "backends " + tcp.GetCluster()
			for i, w := range tcp.GetWeightedClusters().GetClusters() {
				if i > 0 {
					text += ","
				}
				text += fmt.Sprintf("%s=%d", w.Name, w.Weight)
			}
		case chain.TransportSocket != nil:
			tls := &tlsv3.DownstreamTlsContext{}
			unpack(t, chain.TransportSocket.GetTypedConfig(), tls)
			var names []string
			for _, s := range tls.CommonTlsContext.TlsCertificateSdsSecretConfigs {
				names = append(names, strings.TrimPrefix(s.Name, "cilium-secrets/"))
			}
			text += "certificates " + strings.Join(names, ",")
		default:
			text += "plain"
		}
		e.chains = append(e.chains, text)
	}
	for name, cl := range c.Clusters {
		protocol := 0
		if packed := cl.TypedExtensionProtocolOptions[httpOptions]; packed != nil {
			o := &httpv3.HttpProtocolOptions{}
			unpack(t, packed, o)
			if protocol = 1; o.GetExplicitHttpConfig() != nil {
				protocol = 2
			}
		}
		e.clusters = append(e.clusters, fmt.Sprintf("%s%s %d", name, shownTLS(t, cl), protocol))
	}
	for _, b := range c.Spec.BackendServices {
		for _, port := range b.Ports {
			e.backends = append(e.backends, b.Namespace+"/"+b.Name+" "+port)
		}
	}
	return e.finish()
}

// shownTLS is how a cluster is spoken to with TLS.
func shownTLS(t *testing.T, cl *clusterv3.Cluster) string {
	t.Helper()
	if cl.TransportSocket == nil {
		return ""
	}
	tls := &tlsv3.UpstreamTlsContext{}
	unpack(t, cl.TransportSocket.GetTypedConfig(), tls)
	c := tls.CommonTlsContext.GetCombinedValidationContext()
	text := " " + tls.Sni + " " + c.ValidationContextSdsSecretConfig.Name
	for _, n := range c.DefaultValidationContext.MatchTypedSubjectAltNames {
		text += fmt.Sprintf(" %v:%s%s", n.SanType, n.Matcher.GetExact(), strings.Replace(n.Matcher.GetSuffix(), ".", "*.", 1))
	}
	return text
}

func unpack(t *testing.T, packed *anypb.Any, m proto.Message) {
	t.Helper()
	if err := packed.UnmarshalTo(m); err != nil {
		t.Fatal(err)
	}
}

func shownMatch(m *routev3.RouteMatch) string {
	text := "prefix " + m.GetPrefix()
	switch {
	case m.GetPath() != "":
		text = "path " + m.GetPath()
	case m.GetSafeRegex() != nil:
		text = "regex " + m.GetSafeRegex().Regex
	case m.GetPathSeparatedPrefix() != "":
		text = "separated " + m.GetPathSeparatedPrefix()
	}
	for _, h := range m.Headers {
		s := h.GetStringMatch()
		switch {
		case h.Name == ":method":
			text += " m:" + s.GetExact()
		case h.Name == ":authority":
		case s.GetExact() != "":
			text += fmt.Sprintf(" h:%s:%d:%s", h.Name, Exact, s.GetExact())
		case s.GetPrefix() != "":
			text += fmt.Sprintf(" h:%s:%d:%s", h.Name, Prefix, s.GetPrefix())
		default:
			text += fmt.Sprintf(" h:%s:%d:%s", h.Name, Regex, s.GetSafeRegex().GetRegex())
		}
	}
	for _, q := range m.QueryParameters {
		text += fmt.Sprintf(" q:%s:%d:%s", q.Name, Exact, q.GetStringMatch().GetExact())
	}
	return text
}

func shownAction(r *routev3.Route) string {
	switch {
	case r.GetRedirect().GetHttpsRedirect():
		return "https"
	case r.GetRedirect() != nil:
		return "redirect " + r.GetRedirect().HostRedirect
	case r.GetDirectResponse() != nil:
		return fmt.Sprint(r.GetDirectResponse().Status)
	}
	text := r.GetRoute().GetCluster()
	for i, w := range r.GetRoute().GetWeightedClusters().GetClusters() {
		if i > 0 {
			text += " "
		}
		text += fmt.Sprintf("%s=%d", w.Name, w.Weight.GetValue())
	}
	if d := r.GetRoute().GetTimeout(); d != nil {
		text += " " + d.AsDuration().String()
	}
	return text
}

// ENV-1 to ENV-9, ENV-16, ENV-22: random models are translated as the reference has it, by a translator that keeps what it can of the model
// before, which differs in one object; all that is written is valid; and an object changes no virtual host but its own.
func TestRandomModels(t *testing.T) {
	for _, firstWins := range []bool{false, true} {
		t.Run(fmt.Sprint("first wins ", firstWins), func(t *testing.T) { checkRandomModels(t, firstWins) })
	}
}

func checkRandomModels(t *testing.T, firstWins bool) {
	o := options
	o.FirstWins = firstWins
	n := 500
	switch {
	case seedtest.Soak():
		n = 5_000
	case testing.Short() || seedtest.RaceEnabled:
		n = 100
	}
	r := random{rand.New(rand.NewPCG(seedtest.Seed(t), 0))}
	var kept Translator
	parts := make([]Model, 4)
	var last map[string][]string
	for i := range n {
		changed := r.IntN(len(parts))
		before := parts[changed]
		parts[changed] = r.of(Name{"ns", fmt.Sprint(changed)})
		m := join(parts)
		result, err := kept.Translate(m, o)
		if err != nil {
			t.Fatal(err)
		}
		want := reference(m, firstWins)
		if result.Empty {
			if len(want.chains) > 0 {
				t.Fatalf("model %d is empty, want %q", i, want.chains)
			}
			last = nil
			continue
		}
		c, err := envoytest.Verify(result.Spec)
		if err != nil {
			t.Fatalf("model %d: %v", i, err)
		}
		got := shown(t, c)
		if diff := cmp.Diff(want, got, cmp.AllowUnexported(expectation{})); diff != "" {
			t.Fatalf("model %d: %s", i, diff)
		}
		if i%20 == 0 {
			fresh, err := new(Translator).Translate(m, o)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(fresh.Spec, result.Spec); diff != "" {
				t.Fatalf("model %d: what was kept differs: %s", i, diff)
			}
		}
		hosts := byHost(got.routes)
		for host := range maps.Keys(last) {
			if name := strings.Fields(host)[1]; !mentions(before, name) && !mentions(parts[changed], name) && hosts[host] != nil && !slices.Equal(hosts[host], last[host]) {
				t.Fatalf("model %d: %s changes with an object that does not name it", i, host)
			}
		}
		last = hosts
	}
}

// byHost are the routes of each table and host.
func byHost(routes []string) map[string][]string {
	found := map[string][]string{}
	for _, r := range routes {
		host, route, _ := strings.Cut(r, " | ")
		found[host] = append(found[host], route)
	}
	return found
}

// mentions reports whether a model has routes of a host.
func mentions(m Model, host string) bool {
	for _, l := range m.HTTP {
		for names := range l.all() {
			if slices.Contains(names, host) {
				return true
			}
		}
	}
	return false
}

// ENV-10: what Envoy would refuse is left out and reported, with the object that it is of.
func TestProblems(t *testing.T) {
	good := route(Prefix, "/", to("s", "1"))
	bad := []*Route{
		{Path: Match{Regex, "/bad["}}, {Path: Match{Prefix, "/a?b"}}, {Path: Match{Exact, "/"}, Headers: []NamedMatch{{"x", Match{Regex, "("}}}},
		{Path: Match{Exact, "/"}, Headers: []NamedMatch{{"", Match{Exact, "v"}}}}, {RequestHeaders: &HeaderEdit{Set: []Header{{"bad\nname", "v"}}}, Backends: to("s", "1")},
	}
	for i, r := range bad {
		r.Source = Name{"ns", "bad"}
		for _, tls := range []bool{false, true} {
			m := Model{HTTP: []Listener{{Hostname: "h", Port: 80, Routes: []*Route{r, good}}}}
			if tls {
				m.HTTP = append(m.HTTP, Listener{Hostname: "h", Port: 443, TLS: true, ForceHTTPS: true, Secrets: []Name{{"n", "t"}}, Routes: []*Route{r, good}})
			}
			result, c := translate(t, m, options)
			if len(result.Problems) == 0 || result.Problems[0].Source != r.Source || len(c.Tables[plainTable].VirtualHosts[0].Routes) > 2 {
				t.Errorf("route %d, TLS %t: %v", i, tls, result.Problems)
			}
		}
	}
}
