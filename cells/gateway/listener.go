// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package gateway

import (
	"fmt"
	"slices"

	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/skep-operator/skep/resources/domain/envoy"
	"github.com/skep-operator/skep/resources/stream/slim"
)

// condition is the status of a condition, with its reason and message.
type condition struct {
	ok              bool
	reason, message string
}

// listener is a listener of a Gateway, and what is to be said of it.
type listener struct {
	of       gatewayv1.Listener
	hostname string                     // "" for all
	kinds    []gatewayv1.RouteGroupKind // of routes that it serves
	secrets  []envoy.Name

	accepted   condition
	conflicted *condition // nil if it is not
	resolved   condition
}

// usable reports whether a listener is configured.
func (l *listener) usable() bool { return l.accepted.ok && l.resolved.ok }

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
		return []string{kindHTTP, kindGRPC}
	case gatewayv1.TLSProtocolType:
		return []string{kindTLS}
	}
	return nil
}

// planListeners decides about the listeners of a Gateway.
func planListeners(g *gateway, ask asker) []*listener {
	all := make([]*listener, len(g.Spec.Listeners))
	for i, of := range g.Spec.Listeners {
		l := &listener{of: of, kinds: []gatewayv1.RouteGroupKind{}}
		if of.Hostname != nil {
			l.hostname = string(*of.Hostname)
		}
		l.accepted = l.accept()
		if l.resolved = l.resolve(g.Namespace.String(), ask); !l.accepted.ok {
			l.kinds = []gatewayv1.RouteGroupKind{} // it serves none
		}
		all[i] = l
	}
	markConflicts(all)
	return all
}

// accept decides whether a listener can be served by its protocol.
func (l *listener) accept() condition {
	switch {
	case supportedKinds(l.of.Protocol) == nil:
		return condition{false, string(gatewayv1.ListenerReasonUnsupportedProtocol), "Unsupported Listener Protocol."}
	case l.of.Protocol == gatewayv1.HTTPSProtocolType && l.mode() != gatewayv1.TLSModeTerminate:
		return condition{false, string(gatewayv1.ListenerReasonUnsupportedValue), "HTTPS is terminated: set tls.mode to Terminate, or protocol to TLS"}
	}
	return condition{true, string(gatewayv1.ListenerReasonAccepted), "Listener Accepted"}
}

// resolve decides about the kinds of routes and the certificates of a listener.
func (l *listener) resolve(namespace string, ask asker) condition {
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
	if invalid {
		return condition{false, string(gatewayv1.ListenerReasonInvalidRouteKinds), "Invalid Route Kinds"}
	}
	if l.terminates() {
		if v := l.certificates(namespace, ask); !v.ok {
			return v
		}
	}
	return condition{true, string(gatewayv1.ListenerReasonResolvedRefs), "Resolved Refs"}
}

func routeKind(kind string) gatewayv1.RouteGroupKind {
	return gatewayv1.RouteGroupKind{Group: new(gatewayv1.Group(gatewayv1.GroupName)), Kind: gatewayv1.Kind(kind)}
}

// serves reports whether a listener serves a kind of routes.
func (l *listener) serves(kind string) bool {
	return slices.ContainsFunc(l.kinds, func(k gatewayv1.RouteGroupKind) bool { return string(k.Kind) == kind })
}

// certificates checks those of a listener. All are to be usable.
func (l *listener) certificates(namespace string, ask asker) condition {
	invalid := condition{false, string(gatewayv1.ListenerReasonInvalidCertificateRef), "Invalid CertificateRef"}
	if l.of.TLS == nil || len(l.of.TLS.CertificateRefs) == 0 {
		return invalid
	}
	for _, ref := range l.of.TLS.CertificateRefs {
		key, ok := secretOf(namespace, ref)
		switch {
		case !ok:
			return invalid
		case !ask.granted(kindGateway, namespace, kindSecret, key):
			return condition{false, string(gatewayv1.ListenerReasonRefNotPermitted), "CertificateRef is not permitted"}
		case !ask(question{about: aboutSecret, key: key}).ok:
			return invalid
		}
		l.secrets = append(l.secrets, envoy.Name{Namespace: key.Namespace, Name: key.Name})
	}
	return condition{ok: true}
}

// secretOf is the Secret that a Gateway refers to. ok is false for a reference to something else.
func secretOf(namespace string, ref gatewayv1.SecretObjectReference) (key slim.Key, ok bool) {
	if ref.Group != nil && *ref.Group != "" || ref.Kind != nil && *ref.Kind != kindSecret {
		return key, false
	}
	if ref.Namespace != nil {
		namespace = string(*ref.Namespace)
	}
	return slim.Key{Namespace: namespace, Name: string(ref.Name)}, true
}

// markConflicts has no listener accepted that another one of the same port contradicts.
func markConflicts(all []*listener) {
	for i, l := range all {
		for j, other := range all {
			if i == j || l.of.Port != other.of.Port || supportedKinds(l.of.Protocol) == nil || supportedKinds(other.of.Protocol) == nil {
				continue
			}
			plain, otherPlain := l.of.Protocol == gatewayv1.HTTPProtocolType, other.of.Protocol == gatewayv1.HTTPProtocolType
			switch {
			case plain != otherPlain, l.of.Protocol != other.of.Protocol && l.hostname == other.hostname:
				l.conflict(gatewayv1.ListenerReasonProtocolConflict, fmt.Sprintf("Listener %s has another protocol on port %d", other.of.Name, l.of.Port))
			case l.of.Protocol == other.of.Protocol && l.hostname == other.hostname:
				l.conflict(gatewayv1.ListenerReasonHostnameConflict, fmt.Sprintf("Listener %s has the same hostname on port %d", other.of.Name, l.of.Port))
			}
		}
	}
}

// conflict has a listener not accepted. The first conflict is the one that is reported.
func (l *listener) conflict(reason gatewayv1.ListenerConditionReason, message string) {
	if l.conflicted != nil {
		return
	}
	l.conflicted = &condition{true, string(reason), message}
	if l.accepted.ok {
		l.accepted = condition{false, string(reason), message}
	}
}

// programmed is what the condition of that name says.
func (l *listener) programmed() condition {
	if l.usable() {
		return condition{true, string(gatewayv1.ListenerReasonProgrammed), "Listener Programmed"}
	}
	why := l.accepted.message
	if l.accepted.ok {
		why = l.resolved.message
	}
	return condition{false, string(gatewayv1.ListenerReasonInvalid), "Listener not valid. " + why}
}
