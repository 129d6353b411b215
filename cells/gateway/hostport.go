// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package gateway

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/skep-operator/skep/cells/gateway/internal/condition"
	"github.com/skep-operator/skep/cells/gateway/internal/listener"
	"github.com/skep-operator/skep/cells/gateway/internal/route"
	envoyres "github.com/skep-operator/skep/resources/envoy"
	"github.com/skep-operator/skep/resources/stream/slim"
)

// takenPorts are why objects do not have the ports of the nodes that they ask for.
type takenPorts map[portOf]condition.Condition

// portOf is a port that a Gateway or a ListenerSet asks for, by its id.
type portOf struct {
	parent slim.Key
	port   gatewayv1.PortNumber
}

// askedPorts are the objects that ask for ports of the nodes which another Gateway has, for people.
type askedPorts map[gatewayv1.PortNumber][]string

// takenPorts are the ports of the nodes that a Gateway and its ListenerSets ask for and do not have, and why, and what asks for those which they have.
func (c *controller) takenPorts(g *gateway, sets knownSets, lookup route.Lookup) (takenPorts, askedPorts) {
	if !c.Config.GatewayAPIHostNetworkEnabled {
		return nil, nil
	}
	asks := portAsks{}
	asks.add(g, sets.of(g.Key()), lookup)
	if c.Config.GatewayAPIJoinNamespaces {
		return asks.ofComponents(g.Key()), nil
	}
	for other := range c.gateways.All() {
		if other.Key() != g.Key() && c.isLive(other) {
			asks.add(other, sets.of(other.Key()), lookup)
		}
	}
	taken, asked := asks.decide(g.Key())
	for port, all := range asks {
		has := false
		for _, ask := range all {
			if _, is := taken[ask.at(port)]; is || ask.gateway != g.Key() {
				continue
			}
			if of := c.portHolder(ask, port, all); of != nil {
				taken[ask.at(port)] = unavailable("Port %d of the nodes belongs to the %s, which has it already", port, of.Describe())
			} else {
				has = true
			}
		}
		if !has {
			delete(asked, port)
		}
	}
	return taken, asked
}

// portHolder is the CiliumEnvoyConfig of another namespace that has a port already, nil for none.
func (c *controller) portHolder(ask portAsk, port gatewayv1.PortNumber, all []portAsk) *envoyres.Object {
	asks := envoyres.PortAsker{
		Namespace: ask.of.Namespace.String(), Operators: cmp.Or(c.Cluster.K8sNamespace, "kube-system"),
		IsMine: func(o *envoyres.Object) bool { return configNames(ask.gateway).Has(o.Key()) },
		Competes: func(o *envoyres.Object) bool {
			key := slim.Key{Namespace: o.Namespace.String(), Name: o.Controller.Name()}
			return o.Controller.Kind() == route.KindGateway && slices.ContainsFunc(all, func(other portAsk) bool { return other.gateway == key })
		},
	}
	return asks.HolderOf(uint32(port), c.configs)
}

// isLive reports whether a Gateway is served here. The configuration of one that is being deleted, or whose class is gone, may be there for long.
func (c *controller) isLive(g *gateway) bool {
	cl, exists := c.classes.Get(slim.Key{Name: string(g.Spec.GatewayClassName)})
	return g.DeletionTimestamp.IsZero() && exists && cl.Spec.ControllerName == controllerName
}

func unavailable(format string, args ...any) condition.Condition {
	return condition.False(gatewayv1.ListenerReasonPortUnavailable, fmt.Sprintf(format, args...))
}

// portAsks are the objects that ask for ports of the nodes: Gateways, and ListenerSets that they allow.
type portAsks map[gatewayv1.PortNumber][]portAsk

type portAsk struct {
	of      *route.ObjectMeta
	kind    string
	id      slim.Key // of the object
	gateway slim.Key // whose listeners they are
}

func (a portAsk) at(port gatewayv1.PortNumber) portOf { return portOf{a.id, port} }

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
	for _, s := range sets {
		if g.allowsSets(s.Namespace.String(), lookup) {
			add(s.asParent())
		}
	}
}

// decide decides about the ports of a Gateway. It returns which the Gateway and its ListenerSets do not have, and what does not get one
// elsewhere since something at this Gateway has it (GW-55).
func (p portAsks) decide(g slim.Key) (takenPorts, askedPorts) {
	taken, asked := takenPorts{}, askedPorts{}
	for port, asks := range p {
		if !slices.ContainsFunc(asks, func(ask portAsk) bool { return ask.gateway == g }) {
			continue
		}
		slices.SortFunc(asks, comparePortAsks)
		var have portHolders
		for _, ask := range asks {
			of := have.before(ask)
			switch {
			case of == nil:
				have.add(ask)
			case ask.gateway == g:
				taken[ask.at(port)] = unavailable("Port %d of the nodes belongs to the %s, which is older", port, of.describe())
			case of.gateway == g:
				asked[port] = append(asked[port], ask.describe())
			}
		}
	}
	for at, why := range p.ofComponents(g) {
		taken[at] = why
		delete(asked, at.port)
	}
	return taken, asked
}

// ofComponents are the ports of a Gateway and its ListenerSets where components of the cluster listen.
func (p portAsks) ofComponents(g slim.Key) takenPorts {
	taken := takenPorts{}
	for port, asks := range p {
		of := envoyres.ComponentAt(uint32(port))
		for _, ask := range asks {
			if of != "" && ask.gateway == g {
				taken[ask.at(port)] = unavailable("Port %d of the nodes is that of %s", port, of)
			}
		}
	}
	return taken
}

// comparePortAsks sorts the older first.
func comparePortAsks(a, b portAsk) int {
	if c := route.CompareObjects(a.of, b.of); c != 0 {
		return c
	}
	return cmp.Or(strings.Compare(a.kind, b.kind), strings.Compare(a.gateway.Namespace, b.gateway.Namespace), strings.Compare(a.gateway.Name, b.gateway.Name))
}

// portHolders are what has a port of the nodes: Envoy divides its connections between the Gateways that listen there. So they are all of one Gateway,
// or all of one namespace.
type portHolders struct {
	all                  []portAsk
	gateways, namespaces bool // there are several
}

func (h *portHolders) add(ask portAsk) {
	if len(h.all) > 0 {
		first := h.all[0]
		h.gateways = h.gateways || ask.gateway != first.gateway
		h.namespaces = h.namespaces || ask.of.Namespace != first.of.Namespace
	}
	h.all = append(h.all, ask)
}

// before is the oldest object that keeps another one from the port, nil for none.
func (h *portHolders) before(ask portAsk) *portAsk {
	switch {
	case len(h.all) == 0:
		return nil
	case !h.gateways && h.all[0].gateway == ask.gateway, !h.namespaces && h.all[0].of.Namespace == ask.of.Namespace:
		return nil
	}
	i := slices.IndexFunc(h.all, func(of portAsk) bool { return of.gateway != ask.gateway && of.of.Namespace != ask.of.Namespace })
	return &h.all[i]
}

// markTaken has no listener accepted at a port of the nodes that the Gateway does not have.
func (p *planner) markTaken(all []*listener.Listener) {
	for _, l := range all {
		if why, is := p.taken[portOf{l.Parent, l.Of.Port}]; is && l.Accepted.OK && !l.IsPort() {
			l.Accepted = why
		}
	}
}

// reportPorts reports on a Gateway which ports of the nodes it does not have, and which of those that it has others ask for.
func (c *controller) reportPorts(g *gateway, taken takenPorts, asked askedPorts) {
	c.reports.Set(portsOfNodes, aboutGateway(g), portNotices(g.Key(), taken, asked)...)
}

func portNotices(g slim.Key, taken takenPorts, asked askedPorts) (notices []envoyres.Notice) {
	own := slices.DeleteFunc(slices.Collect(maps.Keys(taken)), func(at portOf) bool { return at.parent != g })
	slices.SortFunc(own, func(a, b portOf) int { return cmp.Compare(a.port, b.port) })
	for _, at := range own {
		notices = append(notices, envoyres.Notice{Reason: hostPortOfAnother, Message: "No listener is at a port that it asks for: " + taken[at].Message})
	}
	for _, port := range slices.Sorted(maps.Keys(asked)) {
		by := slices.Sorted(slices.Values(asked[port]))
		text := fmt.Sprintf("The %s asks", by[0])
		if len(by) > 1 {
			text = fmt.Sprintf("The %s and %d more ask", by[0], len(by)-1)
		}
		notices = append(notices, envoyres.Notice{Reason: "HostOfThis", Message: fmt.Sprintf("%s for port %d of the nodes, which this one has, and does not get it: what asks here is older", text, port), ByOthers: true})
	}
	return notices
}

// hostPortOfAnother is the reason of an Event of what does not have a port of the nodes.
const hostPortOfAnother = "HostPortOfAnother"

// withoutPort is why a ListenerSet does not have a port of the nodes, nil if it has all.
func (p *setPlan) withoutPort() *condition.Condition {
	for _, l := range p.listeners {
		if l.Accepted.Reason == string(gatewayv1.ListenerReasonPortUnavailable) {
			return &l.Accepted
		}
	}
	return nil
}

// portsOfNodes is the part of the reports of a Gateway that are about these.
const portsOfNodes = "ports of the nodes"

// hostPortsChanged are all Gateways: one may get or lose a port of the nodes as another one changes, or a ListenerSet.
func (c *controller) hostPortsChanged() (keys []slim.Key) {
	if !c.Config.GatewayAPIHostNetworkEnabled {
		return nil
	}
	for g := range c.gateways.All() {
		keys = append(keys, g.Key())
	}
	return keys
}
