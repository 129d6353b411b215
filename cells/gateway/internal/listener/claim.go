// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package listener

import (
	"fmt"
	"iter"
	"slices"
	"strings"

	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/skep-operator/skep/cells/gateway/internal/condition"
	"github.com/skep-operator/skep/cells/gateway/internal/route"
	"github.com/skep-operator/skep/resources/stream/slim"
)

// Refusal is why a listener that accepts a route does not serve it.
type Refusal struct {
	condition.Condition
	By *route.Route // the older one, which has the host; nil if the listener itself is why
}

// Equal compares reasons.
func (r *Refusal) Equal(other *Refusal) bool {
	return r.Condition == other.Condition && (r.By == nil) == (other.By == nil) && (r.By == nil || r.By.ID() == other.By.ID())
}

// Why a listener does not serve a route, in its status.
const (
	HostConflict  = string(gatewayv1.ListenerReasonHostnameConflict)
	PortsNotApart = string(gatewayv1.RouteReasonUnsupportedValue)
	oneListenerIs = "an agent of a release before 1.20 runs, which has one listener for all ports"
)

// Sharing is a host that a route of another namespace than its oldest one has at a listener, too.
type Sharing struct {
	Oldest, Younger *route.Route
	Host            string
}

// HostClaims are the hosts that routes have, which claim them from the oldest on (GW-51, GW-52).
type HostClaims struct {
	// apart says that connections of TLS are told apart by their ports, and joins that namespaces share hosts, whichever route is older.
	apart, joins bool
	at           map[hostAt][]*route.Route // the oldest of each kind and namespace
	https        map[string][]secureClaim  // of listeners for HTTPS, by host
	tls          map[string][]secureClaim  // of listeners for TLS, by host
	own          map[string][]*Listener    // of HTTPS, by their host
	held         map[string][]secureClaim  // of TLS by host, the oldest of a port and of two namespaces
	// under are those of HTTPS by the wildcards for their hosts, without *, as far as these are not wider than the listener, and are expected.
	under  map[string][]secureClaim
	closed map[hostAt]*closed
	crowd  crowd
	// unknown are those of the closed routes of which it is not known what they match.
	unknown map[*route.Route]bool
	// Shared are routes of several namespaces that have a host in common: the first one that two have.
	Shared  []Sharing
	sharers map[sharers]bool
}

type sharers struct{ oldest, younger *route.Route }

type hostAt struct {
	listener *Listener
	host     string
}

type secureClaim struct {
	listener *Listener
	by       *route.Route
}

// NewHostClaims returns claims of no route to the hosts of listeners. apart says that connections of TLS are told apart by their ports, and joins that
// namespaces share hosts, whichever route is older.
func NewHostClaims(listeners []*Listener, apart, joins bool) *HostClaims {
	c := &HostClaims{apart: apart, joins: joins, at: map[hostAt][]*route.Route{}, https: map[string][]secureClaim{}, tls: map[string][]secureClaim{}, own: map[string][]*Listener{},
		held: map[string][]secureClaim{}, under: map[string][]secureClaim{}, closed: map[hostAt]*closed{}, unknown: map[*route.Route]bool{}, sharers: map[sharers]bool{}}
	for _, l := range listeners {
		if l.Of.Protocol == gatewayv1.HTTPSProtocolType && l.Usable() {
			c.own[orAny(l.Hostname)] = append(c.own[orAny(l.Hostname)], l)
		}
	}
	return c
}

func orAny(host string) string {
	if host == "" {
		return "*"
	}
	return host
}

// Claim has a route have its hosts at a listener, unless older ones have one of them.
func (c *HostClaims) Claim(r *route.Route, h Hosts) *Refusal {
	if h.Listener.inseparable {
		return &Refusal{Condition: condition.False(PortsNotApart, h.Listener.Accepted.Message)}
	}
	if !h.Listener.Usable() {
		return nil
	}
	for _, host := range h.Names {
		if why := c.refuse(r, h.Listener, host); why != nil {
			return why
		}
	}
	for _, host := range h.Names {
		c.add(r, h.Listener, host)
	}
	return nil
}

// closed are routes that have a host at a listener and are not served.
type closed struct {
	oldest  []*route.Route               // of two namespaces
	unknown map[slim.String]*route.Route // by namespace, the oldest one of these
}

// Close has the hosts of a route that is not served closed at a listener: to younger routes of other namespaces, and, if it is not known which requests it is
// for, to all others of its namespace, which may lack what protects these. It is to be called before any route claims a host, for the older routes first.
func (c *HostClaims) Close(r *route.Route, h Hosts, isUnknown bool) {
	if isUnknown {
		c.unknown[r] = true
	}
	for _, host := range h.Names {
		at := hostAt{h.Listener, host}
		by := c.closed[at]
		if by == nil {
			by = &closed{unknown: map[slim.String]*route.Route{}}
			c.closed[at] = by
		}
		if len(by.oldest) == 0 || len(by.oldest) == 1 && by.oldest[0].Namespace != r.Namespace {
			by.oldest = append(by.oldest, r)
		}
		if isUnknown && by.unknown[r.Namespace] == nil {
			by.unknown[r.Namespace] = r
		}
	}
}

// refuseClosed is why a route does not have a host that is closed.
func (c *HostClaims) refuseClosed(r *route.Route, l *Listener, host string) *Refusal {
	older := c.crowd.oldest(l, host)
	if by := c.closed[hostAt{l, host}]; by != nil {
		if other := by.unknown[r.Namespace]; other != nil && !c.unknown[r] {
			return &Refusal{Condition: condition.False(HostConflict, fmt.Sprintf(
				"Host %s of listener %s is closed: it is not known which requests %s %s is for", host, l.Of.Name, other.Kind, other.Source()))}
		}
		older = slices.Concat(by.oldest, older)
	}
	for _, other := range older {
		if !c.joins && other.Namespace != r.Namespace && route.CompareAge(other, r) < 0 {
			return &Refusal{condition.False(HostConflict, fmt.Sprintf(
				"Host %s of listener %s belongs to %s %s, which is older, and is closed", host, l.Of.Name, other.Kind, other.Source())), other}
		}
	}
	return nil
}

// refuse finds what keeps a route from a host.
func (c *HostClaims) refuse(r *route.Route, l *Listener, host string) *Refusal {
	if why := c.refuseClosed(r, l, host); why != nil {
		return why
	}
	for _, other := range c.at[hostAt{l, host}] {
		switch {
		case c.joins || other.Namespace == r.Namespace:
		case other.Kind != r.Kind:
			return &Refusal{condition.False(HostConflict, fmt.Sprintf(
				"Host %s of listener %s belongs to %s %s, which is older: a host is that of one kind of routes", host, l.Of.Name, other.Kind, other.Source())), other}
		case !r.IsHTTP():
			return &Refusal{condition.False(HostConflict, fmt.Sprintf(
				"Connections to host %s of listener %s belong to %s %s, which is older", host, l.Of.Name, other.Kind, other.Source())), other}
		}
	}
	if c.apart || !l.HasTLS() {
		return nil
	}
	isTLS := l.Of.Protocol == gatewayv1.TLSProtocolType
	for _, other := range c.own[host] {
		if isTLS && other.Of.Port != l.Of.Port {
			return &Refusal{Condition: condition.False(PortsNotApart, fmt.Sprintf(
				"TLS of host %s ends at port %d for HTTPS, and cannot be served at port %d: %s", host, other.Of.Port, l.Of.Port, oneListenerIs))}
		}
	}
	contradict := [][]secureClaim{c.tls[host]} // listeners for HTTPS serve a host at any number of ports
	if isTLS {
		contradict = append(contradict, c.https[host])
	}
	for _, claims := range contradict {
		for _, other := range claims {
			if other.listener.Of.Port != l.Of.Port && (other.by != r || other.listener.Terminates() != l.Terminates()) { // else both ports serve the same
				return other.refuse(host, l)
			}
		}
	}
	if isTLS && !c.joins {
		return c.refuseNearer(r, l, host)
	}
	return nil
}

// refuse is why a listener at another port does not have a host that the claim is for.
func (other secureClaim) refuse(host string, l *Listener) *Refusal {
	return &Refusal{condition.False(PortsNotApart, fmt.Sprintf("TLS of host %s at port %d belongs to %s %s, which is older, and cannot be told apart from port %d: %s",
		host, other.listener.Of.Port, other.by.Kind, other.by.Source(), l.Of.Port, oneListenerIs)), other.by}
}

// refuseNearer finds an older route of another namespace that would lose connections to its port: a filter chain of a TLSRoute is for its host, and goes
// before that of a wildcard, which a listener for HTTPS has for its own hostname.
func (c *HostClaims) refuseNearer(r *route.Route, l *Listener, host string) *Refusal {
	losing := func(all []secureClaim) *Refusal {
		for _, other := range all {
			if other.listener.Of.Port != l.Of.Port && other.by.Namespace != r.Namespace {
				return other.refuse(host, l)
			}
		}
		return nil
	}
	for wider := range widerOrAny(host) {
		if why := losing(c.held[wider]); why != nil {
			return why
		}
	}
	if suffix, ok := suffixOf(host); ok {
		return losing(c.under[suffix])
	}
	return nil
}

// suffixOf is what a wildcard has after *, if a host is one.
func suffixOf(host string) (suffix string, ok bool) { return strings.CutPrefix(host, "*") }

// Expect has claims be kept as far as hosts need them that a TLSRoute claims later.
func (c *HostClaims) Expect(r *route.Route, h Hosts) {
	if c.apart || r.Kind != route.KindTLS {
		return
	}
	for _, host := range h.Names {
		if suffix, ok := suffixOf(host); ok && c.under[suffix] == nil {
			c.under[suffix] = []secureClaim{}
		}
	}
}

// widerOrAny yields a host, the wildcards that stand for it, and * for all.
func widerOrAny(host string) iter.Seq[string] {
	return func(yield func(string) bool) {
		for wider := range WiderNames(host) {
			if !yield(wider) {
				return
			}
		}
		if host != "*" {
			yield("*")
		}
	}
}

// hold notes who has the connections of a host, as [HostClaims.refuseNearer] needs it.
func (c *HostClaims) hold(r *route.Route, l *Listener, host string) {
	hold := func(at map[string][]secureClaim, name string) {
		ofPort := 0
		for _, other := range at[name] {
			if other.listener.Of.Port != l.Of.Port {
				continue
			}
			if ofPort++; ofPort == 2 || other.by.Namespace == r.Namespace {
				return
			}
		}
		at[name] = append(at[name], secureClaim{l, r})
	}
	hold(c.held, host)
	widest, ok := suffixOf(orAny(l.Hostname))
	if !ok || l.Of.Protocol == gatewayv1.TLSProtocolType || len(c.under) == 0 {
		return
	}
	for suffix := strings.TrimPrefix(host, "*"); suffix != widest && suffix != ""; {
		_, rest, deeper := strings.Cut(strings.TrimPrefix(suffix, "."), ".")
		if suffix = ""; deeper {
			suffix = host[len(host)-len(rest)-1:]
		}
		if c.under[suffix] != nil {
			hold(c.under, suffix)
		}
	}
}

// add has a route have a host.
func (c *HostClaims) add(r *route.Route, l *Listener, host string) {
	at := hostAt{l, host}
	all := c.at[at]
	if len(all) > 0 && all[0].Namespace != r.Namespace && host != "*" && !c.sharers[sharers{all[0], r}] {
		c.sharers[sharers{all[0], r}] = true
		c.Shared = append(c.Shared, Sharing{all[0], r, host})
	}
	if !slices.ContainsFunc(all, func(other *route.Route) bool { return other.Kind == r.Kind && other.Namespace == r.Namespace }) {
		c.at[at] = append(all, r)
	}
	if !c.apart && l.HasTLS() {
		c.hold(r, l, host)
	}
	switch {
	case c.apart:
	case l.Of.Protocol == gatewayv1.HTTPSProtocolType:
		c.https[host] = append(c.https[host], secureClaim{l, r})
	case l.Of.Protocol == gatewayv1.TLSProtocolType:
		c.tls[host] = append(c.tls[host], secureClaim{l, r})
	}
}

// MarkInseparable has no listener accepted whose TLS connections are those of an earlier one at another port, where agents have one
// listener of Envoy for all ports (GW-52).
func MarkInseparable(all []*Listener) {
	first := map[string]*Listener{}
	for _, l := range all {
		if l.inseparable = false; !l.Accepted.OK || !l.HasTLS() || l.Hostname == "" || strings.HasPrefix(l.Hostname, "*") {
			continue
		}
		other := first[l.Hostname]
		switch {
		case other == nil:
			first[l.Hostname] = l
		case other.Of.Port != l.Of.Port && other.Of.Protocol != l.Of.Protocol: // routes claim what two of one protocol serve
			l.inseparable = true
			l.Accepted = condition.False(gatewayv1.ListenerReasonUnsupportedValue, fmt.Sprintf(
				"Listener %s has the hostname at port %d, and TLS of both cannot be told apart: %s", other.Of.Name, other.Of.Port, oneListenerIs))
		}
	}
}
