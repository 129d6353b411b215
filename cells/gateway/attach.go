// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package gateway

import (
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/skep-operator/skep/cells/gateway/internal/condition"
	"github.com/skep-operator/skep/cells/gateway/internal/route"
	"github.com/skep-operator/skep/resources/stream/slim"
)

// attachment is what becomes of a route at one of its parents.
type attachment struct {
	accepted condition.Condition
	at       []hosts
}

// hosts are the host names of a route at a listener.
type hosts struct {
	listener *listener
	usable   bool     // what the listener was
	names    []string // * for all
}

func (h hosts) equal(other hosts) bool {
	return h.listener == other.listener && h.usable == other.usable && slices.Equal(h.names, other.names)
}

func notAccepted(reason gatewayv1.RouteConditionReason, format string, args ...any) attachment {
	return attachment{accepted: condition.False(reason, fmt.Sprintf(format, args...))}
}

// attach decides which listeners of a Gateway or a ListenerSet serve a route by its reference to that. It is accepted if one does.
// The listeners may be a part of those that are configured together.
func attach(r *route.Route, ref gatewayv1.ParentReference, listeners, all []*listener, lookup route.Lookup) attachment {
	selected, parent := selectListeners(ref, listeners), route.ParentKind(ref)
	if len(selected) == 0 {
		if ref.Port != nil && !slices.ContainsFunc(listeners, func(l *listener) bool { return l.of.Port == *ref.Port }) {
			return notAccepted(gatewayv1.RouteReasonNoMatchingParent, "No matching listener with port %d", *ref.Port)
		}
		if ref.SectionName != nil {
			return notAccepted(gatewayv1.RouteReasonNoMatchingParent, "No matching listener with sectionName %s", *ref.SectionName)
		}
		return notAccepted(gatewayv1.RouteReasonNoMatchingParent, "The %s has no listeners", parent)
	}
	inNamespace := slices.DeleteFunc(slices.Clone(selected), func(l *listener) bool { return !l.allowsNamespace(r, lookup) })
	if len(inNamespace) == 0 {
		why := "namespace restrictions"
		if !slices.ContainsFunc(selected, func(l *listener) bool { from, _ := l.allowed(); return from != gatewayv1.NamespacesFromSelector }) {
			why = "namespace selector restrictions"
		}
		return notAccepted(gatewayv1.RouteReasonNotAllowedByListeners, "%s is not allowed to attach to this %s due to %s", r.Kind, parent, why)
	}
	ofKind := slices.DeleteFunc(inNamespace, func(l *listener) bool { return !l.serves(r.Kind) })
	if len(ofKind) == 0 {
		return notAccepted(gatewayv1.RouteReasonNotAllowedByListeners, "%s is not allowed to attach to this %s due to route kind restrictions", r.Kind, parent)
	}
	a := attachment{accepted: condition.True(gatewayv1.RouteReasonAccepted, "Accepted "+r.Kind)}
	shared := false
	for _, l := range ofKind {
		names := intersect(r.Hostnames, l.hostname)
		shared = shared || len(names) > 0
		if names = isolate(names, l, all); len(names) > 0 {
			a.at = append(a.at, hosts{l, l.usable(), names})
		}
	}
	if !shared {
		return notAccepted(gatewayv1.RouteReasonNoMatchingListenerHostname, "No matching listener hostname")
	}
	return a
}

// selectListeners are the listeners that a reference names.
func selectListeners(ref gatewayv1.ParentReference, all []*listener) (selected []*listener) {
	for _, l := range all {
		if (ref.SectionName == nil || *ref.SectionName == l.of.Name) && (ref.Port == nil || *ref.Port == l.of.Port) {
			selected = append(selected, l)
		}
	}
	return selected
}

// allowed is which namespaces a listener takes routes from.
func (l *listener) allowed() (gatewayv1.FromNamespaces, *metav1.LabelSelector) {
	if l.of.AllowedRoutes == nil || l.of.AllowedRoutes.Namespaces == nil || l.of.AllowedRoutes.Namespaces.From == nil {
		return gatewayv1.NamespacesFromSame, nil
	}
	return *l.of.AllowedRoutes.Namespaces.From, l.of.AllowedRoutes.Namespaces.Selector
}

// allowsNamespace reports whether a listener takes routes of the namespace of one.
func (l *listener) allowsNamespace(r *route.Route, lookup route.Lookup) bool {
	from, selector := l.allowed()
	return selectsNamespace(from, selector, l.namespace, r.Namespace.String(), lookup)
}

// selectsNamespace reports whether an object of the namespace own allows those of another one.
func selectsNamespace(from gatewayv1.FromNamespaces, selector *metav1.LabelSelector, own, other string, lookup route.Lookup) bool {
	switch from {
	case gatewayv1.NamespacesFromAll:
		return true
	case gatewayv1.NamespacesFromSame:
		return own == other
	case gatewayv1.NamespacesFromSelector:
		s, err := metav1.LabelSelectorAsSelector(selector)
		if err != nil {
			return false
		}
		a := lookup(route.Query{About: route.AboutNamespace, Key: slim.Key{Name: other}})
		return a.Exists && s.Matches(a.Labels)
	}
	return false
}

// intersect returns the host names that a route and a listener share, sorted; * for all.
func intersect(of []gatewayv1.Hostname, listener string) (shared []string) {
	if listener == "*" {
		listener = ""
	}
	if len(of) == 0 {
		if listener == "" {
			return []string{"*"}
		}
		return []string{listener}
	}
	for _, h := range of {
		switch name := string(h); {
		case name == "*":
			if listener == "" {
				shared = append(shared, "*")
			} else {
				shared = append(shared, listener)
			}
		case listener == "", name == listener, isBelow(name, listener):
			shared = append(shared, name)
		case isBelow(listener, name):
			shared = append(shared, listener)
		}
	}
	slices.Sort(shared)
	return slices.Compact(shared)
}

// isBelow reports whether a wildcard stands for a host name with at least one more label, which may be a wildcard, too.
func isBelow(name, wildcard string) bool {
	suffix, ok := strings.CutPrefix(wildcard, "*")
	return ok && name != wildcard && len(strings.TrimPrefix(name, "*")) > len(suffix) && strings.HasSuffix(name, suffix)
}

// isolate removes the host names that are another listener's of the same port and protocol, which matches them better.
func isolate(names []string, l *listener, all []*listener) (left []string) {
	for _, name := range names {
		if !slices.ContainsFunc(all, func(other *listener) bool { return other != l && other.isBetter(name, l) }) {
			left = append(left, name)
		}
	}
	return left
}

// isBetter reports whether a listener matches a host name better than another one.
func (l *listener) isBetter(name string, than *listener) bool {
	if l.of.Port != than.of.Port || l.of.Protocol != than.of.Protocol || !l.accepted.OK || l.hostname == "" || name == than.hostname {
		return false
	}
	return name == l.hostname || isBelow(name, l.hostname) && len(l.hostname) > len(than.hostname)
}
