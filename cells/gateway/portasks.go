// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package gateway

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/skep-operator/skep/cells/gateway/internal/condition"
	"github.com/skep-operator/skep/cells/gateway/internal/listener"
	"github.com/skep-operator/skep/cells/gateway/internal/route"
	envoyres "github.com/skep-operator/skep/resources/envoy"
	"github.com/skep-operator/skep/resources/stream/slim"
)

// portAsks are the objects that ask for ports of the nodes: Gateways, and ListenerSets that they allow.
type portAsks map[gatewayv1.PortNumber][]portAsk

type portAsk struct {
	of      *route.ObjectMeta
	kind    string
	id      slim.Key // of the object
	gateway slim.Key // whose listeners they are
}

func (a portAsk) at(port gatewayv1.PortNumber) portOf { return portOf{a.id, port} }

// isGuest reports whether it is a ListenerSet of another namespace than its Gateway.
func (a portAsk) isGuest() bool { return a.of.Namespace.String() != a.gateway.Namespace }

// isApart reports whether two objects do not share a port: Envoy divides its connections between the Gateways that listen there. One Gateway shares its
// ports with all ListenerSets that it allows, and a namespace has its Gateways share ports, where these serve no guests at them.
func (a portAsk) isApart(other portAsk) bool {
	return a.gateway != other.gateway && (a.of.Namespace != other.of.Namespace || a.isGuest() || other.isGuest())
}

func (a portAsk) describe() string {
	if a.kind == route.KindGateway {
		return "Gateway " + a.gateway.String()
	}
	return fmt.Sprintf("%s %s of the Gateway %s", a.kind, a.of.Key(), a.gateway)
}

// add adds what a Gateway and its ListenerSets ask for. Envoy listens for HTTP, HTTPS and TLS, and for no other protocol.
func (p portAsks) add(g *gateway, sets []*listenerSet, lookup route.Lookup) {
	add := func(h listener.Parent) {
		ask := portAsk{h.ObjectMeta, h.Kind, h.ID(), g.Key()}
		for _, l := range h.Listeners {
			switch l.Protocol {
			case gatewayv1.HTTPProtocolType, gatewayv1.HTTPSProtocolType, gatewayv1.TLSProtocolType:
				if all := p[l.Port]; len(all) == 0 || all[len(all)-1] != ask {
					p[l.Port] = append(all, ask)
				}
			}
		}
	}
	add(g.asParent())
	allowed := map[slim.String]bool{}
	for _, s := range sets {
		is, known := allowed[s.Namespace]
		if !known {
			is = g.allowsSets(s.Namespace.String(), lookup)
			allowed[s.Namespace] = is
		}
		if is {
			add(s.asParent())
		}
	}
}

// comparePortAsks sorts the older first.
func comparePortAsks(a, b portAsk) int {
	return cmp.Or(cmp.Compare(a.of.CreationTimestamp, b.of.CreationTimestamp),
		strings.Compare(a.of.Namespace.String(), b.of.Namespace.String()), strings.Compare(a.of.Name, b.of.Name), strings.Compare(a.kind, b.kind),
		strings.Compare(a.gateway.Namespace, b.gateway.Namespace), strings.Compare(a.gateway.Name, b.gateway.Name))
}

// portDecision is which Gateways and ListenerSets have the ports of the nodes that they ask for, as far as they are among themselves. It is not changed
// once it is made.
type portDecision struct {
	known map[knownAsk]bool
	asks  map[portOf]bool // by Gateway, for itself or for its ListenerSets
	has   map[slim.Key]map[gatewayv1.PortNumber][]portAsk
	taken map[slim.Key]takenPorts
	asked map[slim.Key]askedPorts
}

// decide decides about all ports: an object has one if no older one has it from which it is apart (GW-55).
func (p portAsks) decide() *portDecision {
	d := &portDecision{map[knownAsk]bool{}, map[portOf]bool{}, map[slim.Key]map[gatewayv1.PortNumber][]portAsk{}, map[slim.Key]takenPorts{}, map[slim.Key]askedPorts{}}
	for port, asks := range p {
		for _, ask := range asks {
			d.known[ask.known(port)], d.asks[portOf{ask.gateway, port}] = true, true
		}
		if of := envoyres.ComponentAt(uint32(port)); of != "" {
			for _, ask := range asks {
				d.refuse(ask, port, unavailable("Port %d of the nodes is that of %s", port, of))
			}
			continue
		}
		slices.SortFunc(asks, comparePortAsks)
		var have portHolders
		for _, ask := range asks {
			if of := have.before(ask); of != nil {
				d.refuse(ask, port, unavailable("Port %d of the nodes belongs to the %s, which is older", port, of.describe()))
				d.asked[of.gateway] = d.asked[of.gateway].with(port, ask)
			} else {
				have.add(ask)
				d.give(ask, port)
			}
		}
	}
	return d
}

// knownAsk is what was decided about: the same name may be another object's by now, or a ListenerSet of another Gateway.
type knownAsk struct {
	portOf
	gateway slim.Key
	uid     slim.UID
}

func (a portAsk) known(port gatewayv1.PortNumber) knownAsk {
	return knownAsk{a.at(port), a.gateway, a.of.UID}
}

// unknown are the ones of these that were not decided about.
func (d *portDecision) unknown(all portAsks) (at []portOf) {
	for port, asks := range all {
		for _, ask := range asks {
			if !d.known[ask.known(port)] {
				at = append(at, ask.at(port))
			}
		}
	}
	return at
}

func (d *portDecision) give(ask portAsk, port gatewayv1.PortNumber) {
	if d.has[ask.gateway] == nil {
		d.has[ask.gateway] = map[gatewayv1.PortNumber][]portAsk{}
	}
	d.has[ask.gateway][port] = append(d.has[ask.gateway][port], ask)
}

func (d *portDecision) refuse(ask portAsk, port gatewayv1.PortNumber, why condition.Condition) {
	if d.taken[ask.gateway] == nil {
		d.taken[ask.gateway] = takenPorts{}
	}
	d.taken[ask.gateway][ask.at(port)] = why
}

// portHolders are what has a port: all of one Gateway, or all of one namespace and its own Gateways.
type portHolders struct {
	all      []portAsk
	gateways bool // there are several
	apart    bool // they would be, if they were of several Gateways
}

func (h *portHolders) add(ask portAsk) {
	if len(h.all) > 0 {
		h.gateways = h.gateways || ask.gateway != h.all[0].gateway
		h.apart = h.apart || ask.of.Namespace != h.all[0].of.Namespace
	}
	h.apart = h.apart || ask.isGuest()
	h.all = append(h.all, ask)
}

// before is the oldest object that keeps another one from the port, nil for none. Where it is known to be none, they are not compared one by one: there may be
// thousands.
func (h *portHolders) before(ask portAsk) *portAsk {
	switch {
	case len(h.all) == 0:
		return nil
	case !h.gateways && h.all[0].gateway == ask.gateway, !h.apart && !ask.isGuest() && h.all[0].of.Namespace == ask.of.Namespace:
		return nil
	}
	if i := slices.IndexFunc(h.all, ask.isApart); i >= 0 {
		return &h.all[i]
	}
	return nil
}

// askedPorts are the objects that ask for ports of the nodes which another Gateway has.
type askedPorts map[gatewayv1.PortNumber]askers

// askers are how many objects ask for a port, and the first of them by its name, for people.
type askers struct {
	first string
	n     int
}

func (a askedPorts) with(port gatewayv1.PortNumber, ask portAsk) askedPorts {
	if a == nil {
		a = askedPorts{}
	}
	is, text := a[port], ask.describe()
	if is.n == 0 || text < is.first {
		is.first = text
	}
	a[port] = askers{is.first, is.n + 1}
	return a
}
