// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package listener

import (
	"fmt"
	"iter"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/skep-operator/skep/cells/gateway/internal/condition"
	"github.com/skep-operator/skep/cells/gateway/internal/route"
	"github.com/skep-operator/skep/resources/domain/selector"
	"github.com/skep-operator/skep/resources/stream/slim"
)

// Attachment is what becomes of a route at one of its parents.
type Attachment struct {
	Accepted condition.Condition
	At       []Hosts
}

// Hosts are the host names of a route at a listener.
type Hosts struct {
	Listener *Listener
	usable   bool     // what the listener was
	Names    []string // * for all; sorted, and never changed: listeners share them
}

// Equal compares host names at listeners, and what these were.
func (h Hosts) Equal(other Hosts) bool {
	return h.Listener == other.Listener && h.usable == other.usable && slices.Equal(h.Names, other.Names)
}

// NotAccepted is the attachment of a route that no listener serves.
func NotAccepted(reason gatewayv1.RouteConditionReason, format string, args ...any) Attachment {
	return Attachment{Accepted: condition.False(reason, fmt.Sprintf(format, args...))}
}

// Attach decides which listeners of a Gateway or a ListenerSet serve a route by its reference to that. It is accepted if one does.
// The listeners may be a part of those that are configured together.
func Attach(r *route.Route, ref gatewayv1.ParentReference, listeners []*Listener, all Index, lookup route.Lookup) Attachment {
	selected, parent := selectListeners(ref, listeners), route.ParentKind(ref)
	if len(selected) == 0 {
		if ref.Port != nil && !slices.ContainsFunc(listeners, func(l *Listener) bool { return l.Of.Port == *ref.Port }) {
			return NotAccepted(gatewayv1.RouteReasonNoMatchingParent, "No matching listener with port %d", *ref.Port)
		}
		if ref.SectionName != nil {
			return NotAccepted(gatewayv1.RouteReasonNoMatchingParent, "No matching listener with sectionName %s", *ref.SectionName)
		}
		return NotAccepted(gatewayv1.RouteReasonNoMatchingParent, "The %s has no listeners", parent)
	}
	inNamespace := slices.DeleteFunc(slices.Clone(selected), func(l *Listener) bool { return !l.allowsNamespace(r, lookup) })
	if len(inNamespace) == 0 {
		why := "namespace restrictions"
		if !slices.ContainsFunc(selected, func(l *Listener) bool { return l.allowed.from != gatewayv1.NamespacesFromSelector }) {
			why = "namespace selector restrictions"
		}
		return NotAccepted(gatewayv1.RouteReasonNotAllowedByListeners, "%s is not allowed to attach to this %s due to %s", r.Kind, parent, why)
	}
	ofKind := slices.DeleteFunc(inNamespace, func(l *Listener) bool { return !l.serves(r.Kind) })
	if len(ofKind) == 0 {
		return NotAccepted(gatewayv1.RouteReasonNotAllowedByListeners, "%s is not allowed to attach to this %s due to route kind restrictions", r.Kind, parent)
	}
	a := Attachment{Accepted: condition.True(gatewayv1.RouteReasonAccepted, "Accepted "+r.Kind)}
	shared, known := false, map[string][]string{}
	for _, l := range ofKind {
		names, is := known[l.Hostname]
		if !is {
			names = intersect(r.Hostnames, l.Hostname)
			known[l.Hostname] = names
		}
		shared = shared || len(names) > 0
		if names = isolate(names, l, all); len(names) > 0 {
			a.At = append(a.At, Hosts{l, l.Usable(), names})
		}
	}
	if !shared {
		return NotAccepted(gatewayv1.RouteReasonNoMatchingListenerHostname, "No matching listener hostname")
	}
	return a
}

// Serves reports whether a listener serves a host name of a route by a reference to its object, unless another listener matches the name better.
func (l *Listener) Serves(r *route.Route, ref gatewayv1.ParentReference, name string, lookup route.Lookup) bool {
	return len(selectListeners(ref, []*Listener{l})) > 0 && l.Accepted.OK && (l.Hostname == "" || l.Hostname == name || isBelow(name, l.Hostname)) &&
		l.serves(r.Kind) && l.allowsNamespace(r, lookup)
}

// selectListeners are the listeners that a reference names.
func selectListeners(ref gatewayv1.ParentReference, all []*Listener) (selected []*Listener) {
	for _, l := range all {
		if l.isSelected(ref) {
			selected = append(selected, l)
		}
	}
	return selected
}

func (l *Listener) isSelected(ref gatewayv1.ParentReference) bool {
	return (ref.SectionName == nil || *ref.SectionName == l.Of.Name) && (ref.Port == nil || *ref.Port == l.Of.Port)
}

// chainCost is how many host names a filter chain of TLS counts for: the least that is written for one has as many bytes.
const chainCost = 10

// CountHosts is how many host names [Attach] makes of a route and a reference, or a few more: they are counted before any is made. What is made of a
// TLSRoute for each listener counts, too.
func CountHosts(r *route.Route, ref gatewayv1.ParentReference, listeners []*Listener, lookup route.Lookup) (n int) {
	for _, l := range listeners {
		if !l.isSelected(ref) || !l.serves(r.Kind) {
			continue
		}
		hosts := countShared(r.Hostnames, l.Hostname)
		if hosts > 0 && r.Kind == route.KindTLS {
			hosts += chainCost
		}
		if hosts > 0 && l.allowsNamespace(r, lookup) {
			n += hosts
		}
	}
	return n
}

// countShared is how many host names a route and a listener share; those that are there twice count twice.
func countShared(of []gatewayv1.Hostname, listener string) (n int) {
	if len(of) == 0 {
		return 1
	}
	for _, name := range of {
		if _, ok := sharedName(string(name), listener); ok {
			n++
		}
	}
	return n
}

// allowsNamespace reports whether a listener takes routes of the namespace of one.
func (l *Listener) allowsNamespace(r *route.Route, lookup route.Lookup) bool {
	return l.allowed.Allow(l.namespace, r.Namespace.String(), lookup)
}

// Namespaces are those whose objects may attach to one. The zero value is the namespace of that one.
type Namespaces struct {
	from     gatewayv1.FromNamespaces
	selector labels.Selector // nil if there is none, or an invalid one
}

// NewNamespaces reads which namespaces are allowed. A selector that is invalid, or too large to be read, allows none.
func NewNamespaces(from gatewayv1.FromNamespaces, of *metav1.LabelSelector) Namespaces {
	n := Namespaces{from: from}
	if from == gatewayv1.NamespacesFromSelector {
		n.selector, _ = selector.Of(of)
	}
	return n
}

// allowedBy are the namespaces whose routes may attach to a listener.
func allowedBy(l gatewayv1.Listener) (n Namespaces) {
	if a := l.AllowedRoutes; a != nil && a.Namespaces != nil && a.Namespaces.From != nil {
		n = NewNamespaces(*a.Namespaces.From, a.Namespaces.Selector)
	}
	return n
}

// Allow reports whether an object of the namespace own allows those of another one.
func (n Namespaces) Allow(own, other string, lookup route.Lookup) bool {
	switch n.from {
	case gatewayv1.NamespacesFromAll:
		return true
	case gatewayv1.NamespacesFromSame, "":
		return own == other
	case gatewayv1.NamespacesFromSelector:
		a := lookup(route.Query{About: route.AboutNamespace, Key: slim.Key{Name: other}})
		return n.selector != nil && a.Exists && n.selector.Matches(a.Labels)
	}
	return false
}

// intersect returns the host names that a route and a listener share, sorted; * for all.
func intersect(of []gatewayv1.Hostname, listener string) (shared []string) {
	if len(of) == 0 {
		return []string{orAny(listener)}
	}
	for _, h := range of {
		if name, ok := sharedName(string(h), listener); ok {
			shared = append(shared, name)
		}
	}
	slices.Sort(shared)
	return slices.Compact(shared)
}

// sharedName is the host name that one of a route and that of a listener share, if they do.
func sharedName(name, listener string) (shared string, ok bool) {
	listener = orAny(listener)
	switch {
	case name == "*":
		return listener, true
	case listener == "*", name == listener, isBelow(name, listener):
		return name, true
	case isBelow(listener, name):
		return listener, true
	}
	return "", false
}

// isBelow reports whether a wildcard stands for a host name with at least one more label, which may be a wildcard, too.
func isBelow(name, wildcard string) bool {
	suffix, ok := strings.CutPrefix(wildcard, "*")
	return ok && name != wildcard && len(strings.TrimPrefix(name, "*")) > len(suffix) && strings.HasSuffix(name, suffix)
}

// Index finds listeners that are configured together by their port and host name.
type Index map[indexKey][]*Listener

type indexKey struct {
	port gatewayv1.PortNumber
	host string
}

// NewIndex returns the index of listeners. It is as they are: they may be accepted or not later.
func NewIndex(all []*Listener) Index {
	in := Index{}
	for _, l := range all {
		if l.Hostname != "" {
			key := indexKey{l.Of.Port, l.Hostname}
			in[key] = append(in[key], l)
		}
	}
	return in
}

// WiderNames yields a host name and the wildcards that stand for it.
func WiderNames(name string) iter.Seq[string] {
	return func(yield func(string) bool) {
		rest := strings.TrimPrefix(name, "*.")
		for more := yield(name); more; {
			if _, rest, more = strings.Cut(rest, "."); more {
				more = yield("*." + rest)
			}
		}
	}
}

// isolate removes the host names that are another listener's of the same port and protocol, which matches them better. TLS is not passed
// through where a listener for HTTPS matches better.
func isolate(names []string, l *Listener, all Index) (left []string) {
	isOthers := func(name string) bool { return all.hasBetter(name, l) }
	if !slices.ContainsFunc(names, isOthers) {
		return names
	}
	return slices.DeleteFunc(slices.Clone(names), isOthers)
}

// hasBetter reports whether another listener matches a host name better.
func (in Index) hasBetter(name string, than *Listener) bool {
	for wider := range WiderNames(name) {
		if slices.ContainsFunc(in[indexKey{than.Of.Port, wider}], func(l *Listener) bool { return l != than && l.IsBetter(name, than) }) {
			return true
		}
	}
	return false
}

// Shadows reports whether a listener would have connections for a host name from another one: it matches the name better at its port, also with another
// protocol, since the server name decides which of them has a connection with TLS; or at another port with TLS, where all of them are one listener of Envoy,
// as well.
func (l *Listener) Shadows(than *Listener, name string, together bool) bool {
	closes := l.Accepted.OK && than.Of.Protocol == gatewayv1.HTTPSProtocolType // also if it has nothing: a TLSRoute has a filter chain of its own name
	if l.Of.Port == than.Of.Port {
		return closes && l.Of.Protocol == gatewayv1.TLSProtocolType && l.isNearer(name, than) || l.IsBetter(name, than)
	}
	return together && l.HasTLS() && than.HasTLS() && (closes || l.Usable()) && l.Hostname != "" &&
		(name == l.Hostname || isBelow(name, l.Hostname) && len(l.Hostname) >= len(than.Hostname))
}

// IsBetter reports whether a listener matches a host name better than another one.
func (l *Listener) IsBetter(name string, than *Listener) bool {
	terminates := l.Of.Protocol == gatewayv1.HTTPSProtocolType && than.Of.Protocol == gatewayv1.TLSProtocolType && l.Usable()
	return l.Of.Port == than.Of.Port && (l.Of.Protocol == than.Of.Protocol || terminates) && l.Accepted.OK && l.isNearer(name, than)
}

// isNearer reports whether the hostname of a listener is nearer to a host name than that of another one.
func (l *Listener) isNearer(name string, than *Listener) bool {
	if l.Hostname == "" || name == than.Hostname {
		return false
	}
	return name == l.Hostname || isBelow(name, l.Hostname) && len(l.Hostname) > len(than.Hostname)
}
