// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package ingress

import (
	"fmt"
	"maps"
	"slices"
	"strconv"

	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/skep-operator/skep/resources/domain/envoy"
	"github.com/skep-operator/skep/resources/domain/expression"
	envoyres "github.com/skep-operator/skep/resources/envoy"
)

// ingested is an Ingress as listeners and routes.
type ingested struct {
	model   envoy.Model
	notices []envoyres.Notice
	// backends are the ports of Services that it refers to, and what there was of them.
	backends map[backendPort]found
}

// backendPort is a port of a Service, by its number or its name.
type backendPort struct {
	envoy.Name
	port string
}

// found is what there is of a port of a Service.
type found int

const (
	noService found = iota
	withoutPort
	withPort
)

// claimOf is the claim of an Ingress to its hosts.
func claimOf(i *ingress) envoy.Claim {
	return envoy.Claim{Of: nameOf(i.Key()), Created: i.CreationTimestamp.Time()}
}

// absent is an Ingress of which nothing is served: its hosts stay its own.
func (in ingested) absent(i *ingress) (m envoy.Model) {
	seen := map[string]bool{}
	add := func(host string, port uint32) {
		if !seen[host] {
			seen[host] = true
			m.HTTP = append(m.HTTP, envoy.Listener{Claim: claimOf(i), Hostname: host, Port: port, Absent: true})
		}
	}
	for _, l := range in.model.HTTP {
		add(l.Hostname, l.Port)
	}
	for _, p := range in.model.Passthrough {
		for _, host := range p.Hostnames {
			add(host, p.Port)
		}
	}
	return m
}

// ingester turns one Ingress into listeners and routes.
type ingester struct {
	ingested
	of            *ingress
	name          envoy.Name
	settings      settings
	ports         ports
	defaultSecret envoy.Name // zero: none
	find          func(backendPort) found

	hosts   []string        // in the order of the rules
	claims  map[string]bool // hosts that it names
	refused map[string]bool // hosts that have a path which is left out
	plain   map[string]*envoy.Listener
	noticed map[string]bool
}

// ingest turns an Ingress into listeners and routes. What it asks for and cannot have is left out, and has a notice.
func ingest(of *ingress, s settings, p ports, defaultSecret envoy.Name, find func(backendPort) found) ingested {
	in := &ingester{
		of: of, name: envoy.Name{Namespace: of.Namespace.String(), Name: of.Name}, settings: s, ports: p,
		defaultSecret: defaultSecret, find: find, plain: map[string]*envoy.Listener{}, noticed: map[string]bool{}, claims: map[string]bool{}, refused: map[string]bool{},
	}
	in.backends = map[backendPort]found{}
	if of.IsCut() {
		in.cut()
		return in.ingested
	}
	if s.passthrough {
		in.passthrough()
		in.addClaims()
		return in.ingested
	}
	in.rules()
	in.defaultBackend()
	for _, host := range in.hosts {
		in.model.HTTP = append(in.model.HTTP, *in.plain[host])
	}
	in.tls()
	in.addClaims()
	return in.ingested
}

// mostNotices is how many notices are kept of an Ingress. The others are counted.
const mostNotices = 20

// notice adds a notice, once.
func (in *ingester) notice(reason, format string, args ...any) {
	n := envoyres.Notice{Reason: reason, Message: fmt.Sprintf(format, args...)}
	switch is := reason + " " + n.Message; {
	case in.noticed[is]:
	case len(in.notices) == mostNotices:
		in.noticed[is] = true
		in.notices[mostNotices-1].Others++
	default:
		in.noticed[is] = true
		in.notices = append(in.notices, n)
	}
}

// listener is the plain listener of a host, "" for all hosts.
func (in *ingester) listener(host string) *envoy.Listener {
	if in.plain[host] == nil {
		in.plain[host] = &envoy.Listener{Claim: claimOf(in.of), Hostname: host, Port: in.ports.http}
		in.hosts = append(in.hosts, host)
	}
	return in.plain[host]
}

// claim notes that the Ingress names a host, whatever is served there.
func (in *ingester) claim(host string) {
	if host != "" && in.settings.shared {
		in.claims[host] = true
	}
}

// addClaims adds the hosts that the Ingress names and has nothing for: others do not have them (ENV-33).
func (in *ingester) addClaims() {
	for _, l := range in.model.HTTP {
		delete(in.claims, l.Hostname)
	}
	for _, p := range in.model.Passthrough {
		for _, host := range p.Hostnames {
			delete(in.claims, host)
		}
	}
	port := in.ports.http
	if in.settings.passthrough {
		port = in.ports.passthrough
	}
	for _, host := range slices.Sorted(maps.Keys(in.claims)) {
		in.model.HTTP = append(in.model.HTTP, envoy.Listener{Claim: claimOf(in.of), Hostname: host, Port: port, Claimed: true})
	}
}

func (in *ingester) rules() {
	for _, rule := range in.of.Spec.Rules {
		if rule.HTTP == nil {
			in.notice("RuleWithoutPaths", "the rule for host %q is left out: it has no paths", rule.Host)
		}
		if !in.isServable(rule.Host) {
			continue
		}
		in.claim(rule.Host)
		if rule.HTTP == nil || !in.isMatched(rule.Host) {
			continue
		}
		for _, p := range rule.HTTP.Paths {
			if r := in.route(p); r != nil {
				in.add(rule.Host, r)
			}
		}
	}
}

// add adds a route to a host. Of those that are left out, which are all the same, one is enough for the host to be there.
func (in *ingester) add(host string, r *envoy.Route) {
	l := in.listener(host)
	if r.Refused && in.refused[host] {
		return
	}
	in.refused[host] = in.refused[host] || r.Refused
	l.Routes = append(l.Routes, r)
}

// isServable reports whether a host is one that Envoy accepts: API servers have let other wildcards pass, and let them stay. Envoy would refuse
// the listener of all for one.
func (in *ingester) isServable(host string) bool {
	if host != "" && !isHost(host) {
		in.notice("NotTranslated", "host %s is left out: it is no name of DNS, of which the first label may be a wildcard", expression.Quote(host))
		return false
	}
	return true
}

// isMatched reports whether Envoy takes what is written for requests to a host. Those for one that it does not are no other's.
func (in *ingester) isMatched(host string) bool {
	err := envoy.CheckHost(host, in.settings.mostProgram)
	if err != nil {
		in.notice("NotTranslated", "host %s is left out: its wildcard is written as a regular expression: %v", host, err)
	}
	return err == nil
}

// isHost reports whether a name is one of DNS, of which the first label may be a wildcard.
func isHost(name string) bool {
	return len(validation.IsDNS1123Subdomain(name)) == 0 || len(validation.IsWildcardDNS1123Subdomain(name)) == 0
}

// route is the route of a path, nil if it cannot be served.
func (in *ingester) route(p networkingv1.HTTPIngressPath) *envoy.Route {
	if p.PathType == nil {
		in.notice("PathWithoutType", "the path %q is left out: it has no type", p.Path)
		return nil
	}
	r := &envoy.Route{Path: envoy.Match{Value: p.Path}}
	switch *p.PathType {
	case networkingv1.PathTypeExact:
		r.Path.Kind = envoy.Exact
	case networkingv1.PathTypePrefix:
		r.Path.Kind = envoy.Prefix
	default:
		r.Path.Kind = envoy.Regex
	}
	if p.Path == "" { // all paths
		r.Path = envoy.Match{}
	}
	return in.to(r, p.Backend, "path "+expression.Quote(p.Path))
}

// to sends a route to a backend; nil if that is no Service. It is checked here, once for all hosts: what is left out has no size then, wherever it is counted.
func (in *ingester) to(r *envoy.Route, b networkingv1.IngressBackend, what string) *envoy.Route {
	if b.Service == nil {
		in.notice("UnsupportedBackend", "the %s is left out: its backend is no Service", what)
		return nil
	}
	r.Source, r.RequestTimeout, r.NoBackend = in.name, in.settings.timeout, 503
	r.Backends = in.backend(*b.Service)
	if err := r.Check(in.settings.mostProgram); err != nil {
		in.notice("NotTranslated", "the route for path %s is left out: %v", expression.Quote(r.Path.Value), err)
		return &envoy.Route{Source: in.name, Fallback: r.Fallback, Refused: true}
	}
	return r
}

// backend is the backend of a Service, none if it does not exist.
func (in *ingester) backend(b networkingv1.IngressServiceBackend) []envoy.Backend {
	to := envoy.Backend{Name: envoy.Name{Namespace: in.name.Namespace, Name: b.Name}, Port: b.Port.Name}
	if b.Port.Number != 0 {
		to.Port = strconv.Itoa(int(b.Port.Number))
	}
	if in.findOnce(backendPort{to.Name, to.Port}) == noService {
		return nil
	}
	return []envoy.Backend{to}
}

// findOnce is what there is of a port. What there is not has one notice.
func (in *ingester) findOnce(of backendPort) found {
	is, asked := in.backends[of]
	if asked {
		return is
	}
	is = in.find(of)
	in.backends[of] = is
	switch is {
	case noService:
		in.notice("BackendNotFound", "the Service %s does not exist: its requests are answered with 503", of.Name)
	case withoutPort:
		in.notice("BackendPortNotFound", "the Service %s has no port %s: its requests are answered with 503", of.Name, expression.Quote(of.port))
	}
	return is
}

// defaultBackend is where requests go that no rule is for.
func (in *ingester) defaultBackend() {
	b := in.of.Spec.DefaultBackend
	if b == nil {
		return
	}
	r := in.to(&envoy.Route{Fallback: true}, *b, "default backend")
	if r == nil {
		return
	}
	in.listener("")
	for _, l := range in.plain {
		l.Routes = append(l.Routes, r)
	}
}

// tls adds the listeners of hosts with certificates.
func (in *ingester) tls() {
	at := map[string]int{}
	for _, item := range in.of.Spec.TLS {
		if len(item.Hosts) == 0 {
			in.notice("HostWithoutRule", "TLS with the secret %q is left out: it names no host", item.SecretName)
		}
		for _, host := range item.Hosts {
			if !in.isServable(host) {
				continue
			}
			base := in.plain[host]
			if base == nil {
				base = in.plain[""]
			}
			secret := in.defaultSecret
			if item.SecretName != "" {
				secret = envoy.Name{Namespace: in.name.Namespace, Name: item.SecretName}
			}
			switch i, exists := at[host]; {
			case !in.isMatched(host):
				in.claim(host)
			case base == nil:
				in.claim(host)
				in.notice("HostWithoutRule", "TLS of host %s is left out: no rule is for the host", host)
			case secret == envoy.Name{}:
				in.claim(host)
				in.notice("NoSecret", "TLS of host %s is left out: it has no secret, and there is no default one", host)
			case exists:
				in.model.HTTP[i].Secrets = append(in.model.HTTP[i].Secrets, secret)
			default:
				at[host] = len(in.model.HTTP)
				in.model.HTTP = append(in.model.HTTP, envoy.Listener{
					Claim: claimOf(in.of), Hostname: host, Port: in.ports.https,
					TLS: true, ForceHTTPS: in.settings.forceHTTPS, Secrets: []envoy.Name{secret}, Routes: base.Routes,
				})
			}
		}
	}
}

// passthrough sends TLS connections on.
func (in *ingester) passthrough() {
	if in.of.Spec.DefaultBackend != nil {
		in.notice("UnsupportedBackend", "the default backend is left out: TLS is passed through by host")
	}
	for _, rule := range in.of.Spec.Rules {
		if rule.Host == "" || rule.HTTP == nil {
			in.notice("RuleWithoutHost", "a rule is left out: TLS is passed through by host, to the backend of the path /")
		}
		if rule.Host == "" || !in.isServable(rule.Host) {
			continue
		}
		in.claim(rule.Host)
		if rule.HTTP == nil {
			continue
		}
		to := envoy.Passthrough{Source: in.name, Created: in.of.CreationTimestamp.Time(), Hostnames: []string{rule.Host}, Port: in.ports.passthrough}
		for _, p := range rule.HTTP.Paths {
			if p.Path != "/" {
				in.notice("UnsupportedPath", "the path %q of host %s is left out: TLS is passed through for the path / only", p.Path, rule.Host)
				continue
			}
			if p.Backend.Service == nil {
				in.notice("UnsupportedBackend", "the backend of host %s is left out: it is no Service", rule.Host)
				continue
			}
			to.Backends = append(to.Backends, in.backend(*p.Backend.Service)...)
		}
		in.model.Passthrough = append(in.model.Passthrough, to) // without a backend connections of the host are closed
	}
}
