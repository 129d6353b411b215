// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package gateway

import (
	"fmt"
	"slices"

	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/skep-operator/skep/cells/gateway/internal/condition"
	"github.com/skep-operator/skep/cells/gateway/internal/route"
	"github.com/skep-operator/skep/resources/domain/envoy"
	"github.com/skep-operator/skep/resources/stream/slim"
)

// listener is a listener of a Gateway or a ListenerSet, and what is to be said of it.
type listener struct {
	of        gatewayv1.Listener
	holder    slim.Key                   // the id of the Gateway or the ListenerSet
	namespace string                     // of that
	hostname  string                     // "" for all
	kinds     []gatewayv1.RouteGroupKind // of routes that it serves
	secrets   []envoy.Name

	acceptance
	known    bool // there are routes for its protocol
	resolved condition.Condition
	ready    bool       // there is a kind of routes that it serves, and its certificates are valid
	alone    acceptance // without the listeners of other objects
}

// acceptance is whether a listener is accepted beside others.
type acceptance struct {
	accepted   condition.Condition
	conflicted *condition.Condition // nil if it is not
	// inseparable says that its TLS connections would be those of another port.
	inseparable bool
	leftOut     *condition.Condition // why it is not configured although it could be, nil if it is
}

// usable reports whether a listener is configured.
func (l *listener) usable() bool { return l.accepted.OK && l.ready && l.leftOut == nil }

// terminates reports whether TLS ends at a listener.
func (l *listener) terminates() bool {
	return l.of.Protocol == gatewayv1.HTTPSProtocolType || l.of.Protocol == gatewayv1.TLSProtocolType && l.mode() == gatewayv1.TLSModeTerminate
}

// mode is what is done with TLS: it is terminated unless the listener says otherwise.
func (l *listener) mode() gatewayv1.TLSModeType {
	if l.of.TLS != nil && l.of.TLS.Mode != nil {
		return *l.of.TLS.Mode
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

// planListeners decides about the listeners of a Gateway or a ListenerSet, without those of others.
func planListeners(h holder, lookup route.Lookup) []*listener {
	all := make([]*listener, len(h.listeners))
	for i, of := range h.listeners {
		l := &listener{of: of, holder: h.id(), namespace: h.Namespace.String(), kinds: []gatewayv1.RouteGroupKind{}}
		if of.Hostname != nil && !l.isPort() {
			l.hostname = string(*of.Hostname)
		}
		l.accepted = l.accept(lookup)
		if l.resolved = l.resolve(h.kind, lookup); !l.accepted.OK {
			l.kinds = []gatewayv1.RouteGroupKind{} // it serves none
		}
		all[i] = l
	}
	markConflicts(all)
	for _, l := range all {
		l.alone = l.acceptance
	}
	return all
}

// accept decides whether a listener can be served by its protocol.
func (l *listener) accept(lookup route.Lookup) condition.Condition {
	kinds := supportedKinds(l.of.Protocol)
	l.known = kinds != nil && (!l.isPort() || lookup.Serves(kinds[0]))
	switch {
	case !l.known:
		return condition.False(gatewayv1.ListenerReasonUnsupportedProtocol, "Unsupported Listener Protocol.")
	case l.of.Protocol == gatewayv1.HTTPSProtocolType && l.mode() != gatewayv1.TLSModeTerminate:
		return condition.False(gatewayv1.ListenerReasonUnsupportedValue, "HTTPS is terminated: set tls.mode to Terminate, or protocol to TLS")
	}
	return condition.True(gatewayv1.ListenerReasonAccepted, "Listener Accepted")
}

// resolve decides about the kinds of routes and the certificates of a listener.
func (l *listener) resolve(holder string, lookup route.Lookup) condition.Condition {
	supported, invalid := supportedKinds(l.of.Protocol), false
	if l.of.AllowedRoutes == nil || len(l.of.AllowedRoutes.Kinds) == 0 {
		for _, kind := range supported {
			l.kinds = append(l.kinds, routeKind(kind))
		}
	} else {
		for _, k := range l.of.AllowedRoutes.Kinds {
			if k.Group != nil && *k.Group != gatewayv1.GroupName || !slices.Contains(supported, string(k.Kind)) {
				invalid = true
			} else if !l.serves(string(k.Kind)) {
				l.kinds = append(l.kinds, routeKind(string(k.Kind)))
			}
		}
	}
	certificates := condition.Condition{OK: true}
	if l.terminates() {
		certificates = l.certificates(holder, lookup)
	}
	l.ready = certificates.OK && len(l.kinds) > 0
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
func (l *listener) serves(kind string) bool {
	return slices.ContainsFunc(l.kinds, func(k gatewayv1.RouteGroupKind) bool { return string(k.Kind) == kind })
}

// certificates checks those of a listener of a Gateway or a ListenerSet. All are to be usable.
func (l *listener) certificates(holder string, lookup route.Lookup) condition.Condition {
	invalid := condition.False(gatewayv1.ListenerReasonInvalidCertificateRef, "Invalid CertificateRef")
	if l.of.TLS == nil || len(l.of.TLS.CertificateRefs) == 0 {
		return invalid
	}
	for _, ref := range l.of.TLS.CertificateRefs {
		key, ok := secretOf(l.namespace, ref)
		switch {
		case !ok:
			return invalid
		case !lookup.Granted(holder, l.namespace, kindSecret, key):
			return condition.False(gatewayv1.ListenerReasonRefNotPermitted, "CertificateRef is not permitted")
		case !lookup(route.Query{About: route.AboutSecret, Key: key}).OK:
			return invalid
		}
		l.secrets = append(l.secrets, envoy.Name{Namespace: key.Namespace, Name: key.Name})
	}
	return condition.Condition{OK: true}
}

// secretOf is the Secret that a Gateway or a ListenerSet refers to. ok is false for a reference to something else.
func secretOf(namespace string, ref gatewayv1.SecretObjectReference) (key slim.Key, ok bool) {
	if ref.Group != nil && *ref.Group != "" || ref.Kind != nil && *ref.Kind != kindSecret {
		return key, false
	}
	if ref.Namespace != nil {
		namespace = string(*ref.Namespace)
	}
	return slim.Key{Namespace: namespace, Name: string(ref.Name)}, true
}

// markConflicts has no listener of an object accepted that another one of the same port contradicts.
func markConflicts(all []*listener) {
	for i, l := range all {
		for j, other := range all {
			if i != j && l.of.Port == other.of.Port && l.known && other.known {
				l.conflict(other, "Listener "+string(other.of.Name))
			}
		}
	}
}

// claims are the listeners that are accepted, by what no other listener may have.
type claims struct {
	ports map[protocolPort]*listener
	hosts map[claimedHost]*listener
}

type claimedHost struct {
	port     protocolPort
	hostname string
}

// merge decides about the listeners of several objects together. Those of the first object have precedence.
func merge(objects [][]*listener) (all []*listener) {
	c := claims{map[protocolPort]*listener{}, map[claimedHost]*listener{}}
	for _, listeners := range objects {
		for _, l := range listeners {
			l.acceptance = l.alone
			if !l.known && l.of.Protocol != gatewayv1.TCPProtocolType {
				continue // it may not share the port at all
			}
			for _, other := range []*listener{c.hosts[claimedHost{l.protocolPort(), l.hostname}], c.ports[l.protocolPort()]} {
				if other != nil {
					l.conflict(other, "A listener of the Gateway, or of a ListenerSet that is older,")
				}
			}
		}
		for _, l := range listeners {
			if l.accepted.OK {
				c.ports[l.protocolPort()], c.hosts[claimedHost{l.protocolPort(), l.hostname}] = l, l
			}
		}
		all = append(all, listeners...)
	}
	return all
}

// conflict has a listener not accepted if another one of its port contradicts it, which has a name for the message. The first
// conflict is the one that is reported.
func (l *listener) conflict(with *listener, name string) {
	if l.conflicted != nil || l.protocolPort().protocol != with.protocolPort().protocol {
		return
	}
	same, sameHost := l.of.Protocol == with.of.Protocol, l.hostname == with.hostname
	v := condition.Condition{OK: true}
	switch {
	case !same && (sameHost || !l.hasTLS() || !with.hasTLS()):
		v.Reason, v.Message = string(gatewayv1.ListenerReasonProtocolConflict), fmt.Sprintf("%s has another protocol on port %d", name, l.of.Port)
	case same && sameHost:
		v.Reason, v.Message = string(gatewayv1.ListenerReasonHostnameConflict), fmt.Sprintf("%s has the same hostname on port %d", name, l.of.Port)
	default:
		return
	}
	l.conflicted, l.accepted = &v, condition.False(v.Reason, v.Message)
}

// hasTLS reports whether connections of a listener begin with a server name.
func (l *listener) hasTLS() bool {
	return l.of.Protocol == gatewayv1.HTTPSProtocolType || l.of.Protocol == gatewayv1.TLSProtocolType
}

// programmed is what the condition of that name says.
func (l *listener) programmed() condition.Condition {
	if l.usable() {
		return condition.True(gatewayv1.ListenerReasonProgrammed, "Listener Programmed")
	}
	reason, why := string(gatewayv1.ListenerReasonInvalid), l.accepted.Message
	switch {
	case l.conflicted != nil:
		reason = l.conflicted.Reason
	case l.leftOut != nil:
		reason, why = l.leftOut.Reason, l.leftOut.Message
	case l.accepted.OK:
		why = l.resolved.Message
	}
	return condition.False(reason, "Listener not valid. "+why)
}
