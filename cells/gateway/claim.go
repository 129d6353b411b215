// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package gateway

import (
	"fmt"
	"slices"
	"strings"

	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/skep-operator/skep/cells/gateway/internal/condition"
	"github.com/skep-operator/skep/cells/gateway/internal/route"
)

// refusal is why a listener that accepts a route does not serve it.
type refusal struct {
	condition.Condition
	by *route.Route // the older one, which has the host; nil if the listener itself is why
}

func (r *refusal) equal(other *refusal) bool {
	return r.Condition == other.Condition && (r.by == nil) == (other.by == nil) && (r.by == nil || r.by.ID() == other.by.ID())
}

// Why a listener does not serve a route, in its status.
const (
	hostConflict  = string(gatewayv1.ListenerReasonHostnameConflict)
	portsNotApart = string(gatewayv1.RouteReasonUnsupportedValue)
	oneListenerIs = "an agent of a release before 1.20 runs, which has one listener for all ports"
)

// sharing is a host that a route of another namespace than its oldest one has at a listener, too.
type sharing struct {
	oldest, younger *route.Route
	host            string
}

// hostClaims are the hosts that routes have, which claim them from the oldest on (GW-51, GW-52).
type hostClaims struct {
	// apart says that connections of TLS are told apart by their ports.
	apart bool
	at    map[hostAt][]*route.Route // the oldest of each kind and namespace
	tls   map[string][]secureClaim  // by host
	own   map[string][]*listener    // of HTTPS, by their host
	share []sharing
}

type hostAt struct {
	listener *listener
	host     string
}

type secureClaim struct {
	listener *listener
	by       *route.Route
}

func newHostClaims(listeners []*listener, apart bool) *hostClaims {
	c := &hostClaims{apart: apart, at: map[hostAt][]*route.Route{}, tls: map[string][]secureClaim{}, own: map[string][]*listener{}}
	for _, l := range listeners {
		if l.of.Protocol == gatewayv1.HTTPSProtocolType && l.usable() {
			c.own[orAny(l.hostname)] = append(c.own[orAny(l.hostname)], l)
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

// claim has a route have its hosts at a listener, unless older ones have one of them.
func (c *hostClaims) claim(r *route.Route, h hosts) *refusal {
	if h.listener.inseparable {
		return &refusal{Condition: condition.False(portsNotApart, h.listener.accepted.Message)}
	}
	if !h.listener.usable() {
		return nil
	}
	for _, host := range h.names {
		if why := c.refuse(r, h.listener, host); why != nil {
			return why
		}
	}
	for _, host := range h.names {
		c.add(r, h.listener, host)
	}
	return nil
}

// refuse finds what keeps a route from a host.
func (c *hostClaims) refuse(r *route.Route, l *listener, host string) *refusal {
	for _, other := range c.at[hostAt{l, host}] {
		if other.Kind != r.Kind && other.Namespace != r.Namespace {
			return &refusal{condition.False(hostConflict, fmt.Sprintf(
				"Host %s of listener %s belongs to %s %s, which is older: a host is that of one kind of routes", host, l.of.Name, other.Kind, other.Source())), other}
		}
	}
	if c.apart || !l.hasTLS() {
		return nil
	}
	isTLS := l.of.Protocol == gatewayv1.TLSProtocolType
	for _, other := range c.own[host] {
		if isTLS && other.of.Port != l.of.Port {
			return &refusal{Condition: condition.False(portsNotApart, fmt.Sprintf(
				"TLS of host %s ends at port %d for HTTPS, and cannot be served at port %d: %s", host, other.of.Port, l.of.Port, oneListenerIs))}
		}
	}
	for _, other := range c.tls[host] {
		if other.by == r && other.listener.terminates() == l.terminates() {
			continue // both ports serve the same
		}
		if other.listener.of.Port != l.of.Port && (isTLS || other.listener.of.Protocol == gatewayv1.TLSProtocolType) {
			return &refusal{condition.False(portsNotApart, fmt.Sprintf("TLS of host %s at port %d belongs to %s %s, which is older, and cannot be told apart from port %d: %s",
				host, other.listener.of.Port, other.by.Kind, other.by.Source(), l.of.Port, oneListenerIs)), other.by}
		}
	}
	return nil
}

// add has a route have a host.
func (c *hostClaims) add(r *route.Route, l *listener, host string) {
	at := hostAt{l, host}
	all := c.at[at]
	if len(all) > 0 && all[0].Namespace != r.Namespace && host != "*" {
		c.share = append(c.share, sharing{all[0], r, host})
	}
	if !slices.ContainsFunc(all, func(other *route.Route) bool { return other.Kind == r.Kind && other.Namespace == r.Namespace }) {
		c.at[at] = append(all, r)
	}
	if !c.apart && l.hasTLS() {
		c.tls[host] = append(c.tls[host], secureClaim{l, r})
	}
}

// markInseparable has no listener accepted whose TLS connections are those of an earlier one at another port, where agents have one
// listener of Envoy for all ports (GW-52).
func markInseparable(all []*listener) {
	first := map[string]*listener{}
	for _, l := range all {
		if l.inseparable = false; !l.accepted.OK || !l.hasTLS() || l.hostname == "" || strings.HasPrefix(l.hostname, "*") {
			continue
		}
		other := first[l.hostname]
		switch {
		case other == nil:
			first[l.hostname] = l
		case other.of.Port != l.of.Port && other.of.Protocol != l.of.Protocol: // routes claim what two of one protocol serve
			l.inseparable = true
			l.accepted = condition.False(gatewayv1.ListenerReasonUnsupportedValue, fmt.Sprintf(
				"Listener %s has the hostname at port %d, and TLS of both cannot be told apart: %s", other.of.Name, other.of.Port, oneListenerIs))
		}
	}
}
