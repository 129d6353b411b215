// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package listener

import (
	"fmt"
	"slices"

	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/skep-operator/skep/cells/gateway/internal/condition"
	"github.com/skep-operator/skep/cells/gateway/internal/route"
	"github.com/skep-operator/skep/resources/domain/envoy"
	"github.com/skep-operator/skep/resources/stream/slim"
)

// Listener is a listener of a Gateway or a ListenerSet, and what is to be said of it.
type Listener struct {
	Of        gatewayv1.Listener
	Parent    slim.Key                   // the id of the Gateway or the ListenerSet
	namespace string                     // of that
	allowed   Namespaces                 // whose routes may attach
	Hostname  string                     // "" for all
	Kinds     []gatewayv1.RouteGroupKind // of routes that it serves
	Secrets   []envoy.Name

	acceptance
	known    bool // there are routes for its protocol
	Resolved condition.Condition
	Ready    bool       // there is a kind of routes that it serves, and its certificates are valid
	alone    acceptance // without other listeners
}

// acceptance is whether a listener is accepted beside others.
type acceptance struct {
	Accepted   condition.Condition
	Conflicted *condition.Condition // nil if it is not
	// inseparable says that its TLS connections would be those of another port.
	inseparable bool
	LeftOut     *condition.Condition // why it is not configured although it could be, nil if it is
}

// Usable reports whether a listener is configured.
func (l *Listener) Usable() bool { return l.Accepted.OK && l.Ready && l.LeftOut == nil }

// Terminates reports whether TLS ends at a listener.
func (l *Listener) Terminates() bool {
	return l.Of.Protocol == gatewayv1.HTTPSProtocolType || l.Of.Protocol == gatewayv1.TLSProtocolType && l.mode() == gatewayv1.TLSModeTerminate
}

// mode is what is done with TLS: it is terminated unless the listener says otherwise.
func (l *Listener) mode() gatewayv1.TLSModeType {
	if l.Of.TLS != nil && l.Of.TLS.Mode != nil {
		return *l.Of.TLS.Mode
	}
	return gatewayv1.TLSModeTerminate
}

// supportedKinds are the kinds of routes by the protocol of their listener, nil for a protocol that is not supported.
func supportedKinds(p gatewayv1.ProtocolType) []string {
	switch p {
	case gatewayv1.HTTPProtocolType, gatewayv1.HTTPSProtocolType:
		return []string{route.KindHTTP, route.KindGRPC}
	case gatewayv1.TLSProtocolType:
		return []string{route.KindTLS}
	case gatewayv1.TCPProtocolType:
		return []string{route.KindTCP}
	case gatewayv1.UDPProtocolType:
		return []string{route.KindUDP}
	}
	return nil
}

// Plan decides about the listeners of a Gateway or a ListenerSet, without those of others.
func Plan(p Parent, lookup route.Lookup) []*Listener {
	all := make([]*Listener, len(p.Listeners))
	for i, of := range p.Listeners {
		l := &Listener{Of: of, Parent: p.ID(), namespace: p.Namespace.String(), allowed: allowedBy(of), Kinds: []gatewayv1.RouteGroupKind{}}
		if of.Hostname != nil && !l.IsPort() {
			l.Hostname = string(*of.Hostname)
		}
		l.Accepted = l.accept(lookup)
		if l.Resolved = l.resolve(p.Kind, lookup); !l.Accepted.OK {
			l.Kinds = []gatewayv1.RouteGroupKind{} // it serves none
		}
		all[i] = l
	}
	for _, l := range all {
		l.alone = l.acceptance
	}
	markConflicts(all)
	return all
}

// accept decides whether a listener can be served by its protocol.
func (l *Listener) accept(lookup route.Lookup) condition.Condition {
	kinds := supportedKinds(l.Of.Protocol)
	l.known = kinds != nil && (!l.IsPort() || lookup.Serves(kinds[0]))
	switch {
	case !l.known:
		return condition.False(gatewayv1.ListenerReasonUnsupportedProtocol, "Unsupported Listener Protocol.")
	case l.Of.Protocol == gatewayv1.HTTPSProtocolType && l.mode() != gatewayv1.TLSModeTerminate:
		return condition.False(gatewayv1.ListenerReasonUnsupportedValue, "HTTPS is terminated: set tls.mode to Terminate, or protocol to TLS")
	}
	return condition.True(gatewayv1.ListenerReasonAccepted, "Listener Accepted")
}

// resolve decides about the kinds of routes and the certificates of a listener.
func (l *Listener) resolve(parentKind string, lookup route.Lookup) condition.Condition {
	supported, invalid := supportedKinds(l.Of.Protocol), false
	if l.Of.AllowedRoutes == nil || len(l.Of.AllowedRoutes.Kinds) == 0 {
		for _, kind := range supported {
			l.Kinds = append(l.Kinds, routeKind(kind))
		}
	} else {
		for _, k := range l.Of.AllowedRoutes.Kinds {
			if k.Group != nil && *k.Group != gatewayv1.GroupName || !slices.Contains(supported, string(k.Kind)) {
				invalid = true
			} else if !l.serves(string(k.Kind)) {
				l.Kinds = append(l.Kinds, routeKind(string(k.Kind)))
			}
		}
	}
	certificates := condition.Condition{OK: true}
	if l.Terminates() {
		certificates = l.certificates(parentKind, lookup)
	}
	l.Ready = certificates.OK && len(l.Kinds) > 0
	switch {
	case invalid:
		return condition.False(gatewayv1.ListenerReasonInvalidRouteKinds, "Invalid Route Kinds")
	case !certificates.OK:
		return certificates
	}
	return condition.True(gatewayv1.ListenerReasonResolvedRefs, "Resolved Refs")
}

func routeKind(kind string) gatewayv1.RouteGroupKind {
	return gatewayv1.RouteGroupKind{Group: new(gatewayv1.Group(gatewayv1.GroupName)), Kind: gatewayv1.Kind(kind)}
}

// serves reports whether a listener serves a kind of routes.
func (l *Listener) serves(kind string) bool {
	return slices.ContainsFunc(l.Kinds, func(k gatewayv1.RouteGroupKind) bool { return string(k.Kind) == kind })
}

// certificates checks those of a listener of a Gateway or a ListenerSet. All are to be usable.
func (l *Listener) certificates(parentKind string, lookup route.Lookup) condition.Condition {
	invalid := condition.False(gatewayv1.ListenerReasonInvalidCertificateRef, "Invalid CertificateRef")
	if l.Of.TLS == nil || len(l.Of.TLS.CertificateRefs) == 0 {
		return invalid
	}
	for _, ref := range l.Of.TLS.CertificateRefs {
		key, ok := secretOf(l.namespace, ref)
		switch {
		case !ok:
			return invalid
		case !lookup.Granted(parentKind, l.namespace, KindSecret, key):
			return condition.False(gatewayv1.ListenerReasonRefNotPermitted, "CertificateRef is not permitted")
		case !lookup(route.Query{About: route.AboutSecret, Key: key}).OK:
			return invalid
		}
		l.Secrets = append(l.Secrets, envoy.Name{Namespace: key.Namespace, Name: key.Name})
	}
	return condition.Condition{OK: true}
}

// markConflicts has no listener of an object accepted that another one of the same port contradicts.
func markConflicts(all []*Listener) {
	for i, l := range all {
		for j, other := range all {
			if i != j && l.Of.Port == other.Of.Port && l.known && other.known {
				l.conflict(other, "Listener "+string(other.Of.Name))
			}
		}
	}
}

// claims are the listeners that are accepted, by what no other listener may have.
type claims struct {
	ports map[ProtocolPort]*Listener
	hosts map[claimedHost]*Listener
}

type claimedHost struct {
	port     ProtocolPort
	hostname string
}

// Merge decides about the listeners of several objects together. Those of the first object have precedence: what they keep out of a later object
// contradicts nothing there. refuse, unless nil, is asked about each that would be accepted without those which contradict it, once those of the objects
// before are decided; what it refuses contradicts nothing either.
func Merge(objects [][]*Listener, refuse func(*Listener) *condition.Condition) (all []*Listener) {
	c := claims{map[ProtocolPort]*Listener{}, map[claimedHost]*Listener{}}
	for _, listeners := range objects {
		var left []*Listener
		for _, l := range listeners {
			if l.acceptance = l.alone; refuse != nil && l.Accepted.OK {
				if why := refuse(l); why != nil {
					l.Accepted = *why
					continue
				}
			}
			for _, other := range []*Listener{c.hosts[claimedHost{l.ProtocolPort(), l.Hostname}], c.ports[l.ProtocolPort()]} {
				if other != nil && (l.known || l.Of.Protocol == gatewayv1.TCPProtocolType) { // of others it is not known whether they share the port
					l.conflict(other, "A listener of the Gateway, or of a ListenerSet that is older,")
				}
			}
			if l.Conflicted == nil {
				left = append(left, l)
			}
		}
		markConflicts(left)
		for _, l := range listeners {
			if l.Accepted.OK {
				c.ports[l.ProtocolPort()], c.hosts[claimedHost{l.ProtocolPort(), l.Hostname}] = l, l
			}
		}
		all = append(all, listeners...)
	}
	return all
}

// conflict has a listener not accepted if another one of its port contradicts it, which has a name for the message. The first
// conflict is the one that is reported.
func (l *Listener) conflict(with *Listener, name string) {
	if l.Conflicted != nil || l.ProtocolPort().Protocol != with.ProtocolPort().Protocol {
		return
	}
	same, sameHost := l.Of.Protocol == with.Of.Protocol, l.Hostname == with.Hostname
	v := condition.Condition{OK: true}
	switch {
	case !same && (sameHost || !l.HasTLS() || !with.HasTLS()):
		v.Reason, v.Message = string(gatewayv1.ListenerReasonProtocolConflict), fmt.Sprintf("%s has another protocol on port %d", name, l.Of.Port)
	case same && sameHost:
		v.Reason, v.Message = string(gatewayv1.ListenerReasonHostnameConflict), fmt.Sprintf("%s has the same hostname on port %d", name, l.Of.Port)
	default:
		return
	}
	l.Conflicted, l.Accepted = &v, condition.False(v.Reason, v.Message)
}

// HasTLS reports whether connections of a listener begin with a server name.
func (l *Listener) HasTLS() bool {
	return l.Of.Protocol == gatewayv1.HTTPSProtocolType || l.Of.Protocol == gatewayv1.TLSProtocolType
}

// Programmed is what the condition of that name says.
func (l *Listener) Programmed() condition.Condition {
	if l.Usable() {
		return condition.True(gatewayv1.ListenerReasonProgrammed, "Listener Programmed")
	}
	reason, why := string(gatewayv1.ListenerReasonInvalid), l.Accepted.Message
	switch {
	case l.Conflicted != nil:
		reason = l.Conflicted.Reason
	case l.LeftOut != nil:
		reason, why = l.LeftOut.Reason, l.LeftOut.Message
	case l.Accepted.OK:
		why = l.Resolved.Message
	}
	return condition.False(reason, "Listener not valid. "+why)
}
