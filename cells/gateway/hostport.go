// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package gateway

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"sync"

	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/skep-operator/skep/cells/gateway/internal/condition"
	"github.com/skep-operator/skep/cells/gateway/internal/listener"
	"github.com/skep-operator/skep/cells/gateway/internal/route"
	envoyres "github.com/skep-operator/skep/resources/envoy"
	"github.com/skep-operator/skep/resources/stream"
	"github.com/skep-operator/skep/resources/stream/slim"
)

// takenPorts are why objects do not have the ports of the nodes that they ask for.
type takenPorts map[portOf]condition.Condition

// portOf is a port that a Gateway or a ListenerSet asks for, by its id.
type portOf struct {
	parent slim.Key
	port   gatewayv1.PortNumber
}

// takenPorts are the ports of the nodes that a Gateway and its ListenerSets ask for and do not have, and what asks for those which they have.
func (c *controller) takenPorts(g *gateway, sets knownSets, lookup route.Lookup) (takenPorts, askedPorts) {
	if !c.Config.GatewayAPIHostNetworkEnabled {
		return nil, nil
	}
	own := portAsks{}
	own.add(g, sets.of(g.Key()), lookup)
	if c.Config.GatewayAPIJoinNamespaces { // ports of components are no other's all the same
		return own.decide().taken[g.Key()], nil
	}
	d := c.ports.decision(c, sets, lookup)
	if len(d.unknown(own)) > 0 { // what is new has not come to the mapping of changes
		c.ports.forget()
		d = c.ports.decision(c, sets, lookup)
	}
	taken, asked := takenPorts{}, maps.Clone(d.asked[g.Key()])
	maps.Copy(taken, d.taken[g.Key()])
	for _, at := range d.unknown(own) {
		taken[at] = unavailable("Port %d of the nodes is decided about as soon as the Gateway is known", at.port)
	}
	for port, asks := range d.has[g.Key()] {
		of := c.portHolder(d, g.Key(), port)
		if of == nil {
			continue
		}
		delete(asked, port)
		for _, ask := range asks {
			taken[ask.at(port)] = unavailable("Port %d of the nodes belongs to the %s, which has it already", port, of.Describe())
		}
	}
	return taken, asked
}

// portHolder is the CiliumEnvoyConfig that has a port before a Gateway which may have it by the age of the objects, nil for none.
func (c *controller) portHolder(d *portDecision, g slim.Key, port gatewayv1.PortNumber) *envoyres.Object {
	names := configNames(g)
	gatewayOf := func(o *envoyres.Object) slim.Key {
		if o.Controller.Kind() != route.KindGateway {
			return slim.Key{}
		}
		return slim.Key{Namespace: o.Namespace.String(), Name: o.Controller.Name()}
	}
	asks := envoyres.PortAsker{
		Operators: cmp.Or(c.Cluster.K8sNamespace, "kube-system"),
		IsMine:    func(o *envoyres.Object) bool { return names.Has(o.Key()) },
		Shares:    func(o *envoyres.Object) bool { return len(d.has[gatewayOf(o)][port]) > 0 },
		Yields: func(o *envoyres.Object) bool { // and so does one of the namespace, which has shared it, and goes
			of := gatewayOf(o)
			return d.asks[portOf{of, port}] || of.Namespace == g.Namespace
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

// knownPorts keeps the portDecision until something that it depends on changes: there may be thousands of Gateways, and each asks. It is safe for
// concurrent use.
type knownPorts struct {
	mu      sync.Mutex
	changes uint64
	sets    *stream.Store[listenerSet] // with which it was made
	decided *portDecision              // nil: it is to be made anew
}

// forget has the decision made anew. It is called once a store has a change.
func (k *knownPorts) forget() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.changes++
	k.decided = nil
}

func (k *knownPorts) decision(c *controller, sets knownSets, lookup route.Lookup) *portDecision {
	k.mu.Lock()
	d, of, changes := k.decided, k.sets, k.changes
	k.mu.Unlock()
	if d != nil && of == sets.store {
		return d
	}
	asks := portAsks{}
	for g := range c.gateways.All() {
		if c.isLive(g) {
			asks.add(g, sets.of(g.Key()), lookup)
		}
	}
	d = asks.decide()
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.changes == changes {
		k.decided, k.sets = d, sets.store
	}
	return d
}

// hasLostPort reports whether the configuration of a Gateway, as it is, listens at a port of the nodes that it is not to have any more.
func (c *controller) hasLostPort(d desiredConfig) bool {
	has, exists := c.configs.Get(d.Key)
	return exists && slices.ContainsFunc(has.Spec.HostPorts, func(port uint32) bool {
		return !slices.ContainsFunc(d.plan.listeners, func(l *listener.Listener) bool { return l.Usable() && uint32(l.Of.Port) == port })
	})
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
		text := fmt.Sprintf("The %s asks", asked[port].first)
		if more := asked[port].n - 1; more > 0 {
			text = fmt.Sprintf("The %s and %d more ask", asked[port].first, more)
		}
		notices = append(notices, envoyres.Notice{Reason: "HostOfThis", Message: fmt.Sprintf("%s for port %d of the nodes, which this one has, and does not get it: what asks here is older", text, port), ByOthers: true})
	}
	return notices
}

// portsOfNodes is the part of the reports of a Gateway that are about these.
const portsOfNodes = "ports of the nodes"

// hostPortOfAnother is the reason of an Event of what does not have a port of the nodes.
const hostPortOfAnother = "HostPortOfAnother"

// withoutPort is why a ListenerSet does not have a port of the nodes, nil if it has all. The status of one that is cut has no listeners to say so.
func (p *setPlan) withoutPort() *condition.Condition {
	if p.of.IsCut() {
		return nil
	}
	for _, l := range p.listeners {
		if l.Accepted.Reason == string(gatewayv1.ListenerReasonPortUnavailable) {
			return &l.Accepted
		}
	}
	return nil
}

// hostPortsChanged are all Gateways: one may get or lose a port of the nodes as another one changes, or a ListenerSet.
func (c *controller) hostPortsChanged() (keys []slim.Key) {
	if !c.Config.GatewayAPIHostNetworkEnabled {
		return nil
	}
	c.ports.forget()
	for g := range c.gateways.All() {
		keys = append(keys, g.Key())
	}
	return keys
}
