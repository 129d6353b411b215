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

// takenPorts are the ports of the nodes that a Gateway asks for and does not have, and why, and the younger Gateways of other namespaces that ask for those which it has.
func (c *controller) takenPorts(g *gateway, sets knownSets, lookup route.Lookup) (map[gatewayv1.PortNumber]condition.Condition, askedPorts) {
	if !c.Config.GatewayAPIHostNetworkEnabled {
		return nil, nil
	}
	var others []*gateway
	for other := range c.gateways.All() {
		if other.Key() != g.Key() && c.isLive(other) && !c.Config.GatewayAPIJoinNamespaces {
			others = append(others, other)
		}
	}
	taken, asked := takenPorts(g, others, sets.of, lookup)
	if c.Config.GatewayAPIJoinNamespaces {
		return taken, nil
	}
	holders := map[slim.Key]map[gatewayv1.PortNumber]*route.ObjectMeta{}
	asksFor := func(other *gateway, port gatewayv1.PortNumber) bool {
		if holders[other.Key()] == nil {
			holders[other.Key()] = portHolders(other, sets.of(other.Key()), lookup)
		}
		return holders[other.Key()][port] != nil
	}
	for port, by := range portHolders(g, sets.of(g.Key()), lookup) {
		if _, is := taken[port]; is {
			continue
		}
		asks := envoyres.PortAsker{
			Namespace: by.Namespace.String(), Operators: cmp.Or(c.Cluster.K8sNamespace, "kube-system"),
			IsMine: func(o *envoyres.Object) bool { return configNames(g.Key()).Has(o.Key()) },
			Competes: func(o *envoyres.Object) bool {
				other, exists := c.gateways.Get(slim.Key{Namespace: o.Namespace.String(), Name: o.Controller.Name()})
				return exists && o.Controller.Kind() == route.KindGateway && c.isLive(other) && asksFor(other, port)
			},
		}
		if of := asks.HolderOf(uint32(port), c.configs); of != nil {
			taken[port] = unavailable("Port %d of the nodes belongs to the %s, which has it already", port, of.Describe())
		}
	}
	for port := range taken {
		delete(asked, port)
	}
	return taken, asked
}

// askedPorts are the Gateways that ask for ports of the nodes which another one has.
type askedPorts map[gatewayv1.PortNumber][]slim.Key

// isLive reports whether a Gateway is served here. The configuration of one that is being deleted, or whose class is gone, may be there for long.
func (c *controller) isLive(g *gateway) bool {
	cl, exists := c.classes.Get(slim.Key{Name: string(g.Spec.GatewayClassName)})
	return g.DeletionTimestamp.IsZero() && exists && cl.Spec.ControllerName == controllerName
}

func unavailable(format string, args ...any) condition.Condition {
	return condition.False(gatewayv1.ListenerReasonPortUnavailable, fmt.Sprintf(format, args...))
}

// takenPorts decides about ports of the nodes: components of the cluster listen there, or an older object of another namespace has them at
// another Gateway (GW-55).
func takenPorts(g *gateway, others []*gateway, setsOf func(slim.Key) []*listenerSet, lookup route.Lookup) (map[gatewayv1.PortNumber]condition.Condition, askedPorts) {
	taken, asked, own := map[gatewayv1.PortNumber]condition.Condition{}, askedPorts{}, portHolders(g, setsOf(g.Key()), lookup)
	slices.SortFunc(others, func(a, b *gateway) int { return route.CompareObjects(&b.ObjectMeta, &a.ObjectMeta) }) // the oldest is named
	for _, other := range others {
		for port, by := range portHolders(other, setsOf(other.Key()), lookup) {
			switch mine := own[port]; {
			case mine == nil, by.Namespace == mine.Namespace:
			case route.CompareObjects(by, mine) < 0:
				taken[port] = unavailable("Port %d of the nodes belongs to the Gateway %s, which is older", port, other.Key())
			default:
				asked[port] = append(asked[port], other.Key())
			}
		}
	}
	for port := range own {
		if of := envoyres.ComponentAt(uint32(port)); of != "" {
			taken[port] = unavailable("Port %d of the nodes is that of %s", port, of)
		}
	}
	return taken, asked
}

// portHolders are the oldest objects that ask for ports of the nodes for a Gateway: itself, or a ListenerSet that it allows.
func portHolders(g *gateway, sets []*listenerSet, lookup route.Lookup) map[gatewayv1.PortNumber]*route.ObjectMeta {
	oldest := map[gatewayv1.PortNumber]*route.ObjectMeta{}
	add := func(h listener.Parent) {
		for _, l := range h.Listeners {
			if l.Protocol == gatewayv1.TCPProtocolType || l.Protocol == gatewayv1.UDPProtocolType { // Envoy does not listen for these
				continue
			}
			if has := oldest[l.Port]; has == nil || route.CompareObjects(h.ObjectMeta, has) < 0 {
				oldest[l.Port] = h.ObjectMeta
			}
		}
	}
	add(g.asParent())
	for _, s := range sets {
		if g.allowsSets(s.Namespace.String(), lookup) {
			add(s.asParent())
		}
	}
	return oldest
}

// markTaken has no listener accepted at a port of the nodes that the Gateway does not have.
func (p *planner) markTaken(all []*listener.Listener) {
	for _, l := range all {
		if why, is := p.taken[l.Of.Port]; is && l.Accepted.OK && !l.IsPort() {
			l.Accepted = why
		}
	}
}

// reportPorts reports on a Gateway which ports of the nodes it does not have, and which of those that it has others ask for.
func (c *controller) reportPorts(g *gateway, taken map[gatewayv1.PortNumber]condition.Condition, asked askedPorts) {
	var notices []envoyres.Notice
	for _, port := range slices.Sorted(maps.Keys(taken)) {
		notices = append(notices, envoyres.Notice{Reason: "HostPortOfAnother", Message: "No listener is at a port that it asks for: " + taken[port].Message})
	}
	for _, port := range slices.Sorted(maps.Keys(asked)) {
		by := slices.SortedFunc(slices.Values(asked[port]), func(a, b slim.Key) int { return strings.Compare(a.String(), b.String()) })
		text := fmt.Sprintf("The Gateway %s asks", by[0])
		if len(by) > 1 {
			text = fmt.Sprintf("The Gateway %s and %d more ask", by[0], len(by)-1)
		}
		notices = append(notices, envoyres.Notice{Reason: "HostOfThis", Message: fmt.Sprintf("%s for port %d of the nodes, which this one has, and does not get it: what asks here is older", text, port), ByOthers: true})
	}
	c.reports.Set(portsOfNodes, aboutGateway(g), notices...)
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
