// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package ingress

import (
	"cmp"
	"fmt"
	"slices"
	"sync"

	"github.com/skep-operator/skep/resources/domain/envoy"
	envoyres "github.com/skep-operator/skep/resources/envoy"
	"github.com/skep-operator/skep/resources/stream/slim"
)

// hostPortProblem is why an Ingress does not have the port of the nodes that it asks for, "" if it has it (ING-25). A port belongs to
// the namespace of the oldest Ingress that asks for it, unless a Gateway has it; those of the shared listener to that.
func (c *controller) hostPortProblem(i *ingress, s settings) string {
	if !c.Config.IngressHostNetworkEnabled || s.shared {
		return ""
	}
	if of := envoyres.ComponentAt(s.hostPort); of != "" {
		return fmt.Sprintf("port %d of the nodes is that of %s: ask for another one by the annotation %shost-listener-port", s.hostPort, of, prefix)
	}
	if len(c.Config.IngressHostNetworkPorts) > 0 && !slices.Contains(c.Config.IngressHostNetworkPorts, fmt.Sprint(s.hostPort)) {
		return fmt.Sprintf("port %d of the nodes is none of those that --ingress-hostnetwork-ports allows", s.hostPort)
	}
	if c.Config.IngressJoinNamespaces {
		return ""
	}
	switch oldest, isShared := c.hostPortOwners().at(s.hostPort, c.Config.sharedPorts()); {
	case isShared:
		return fmt.Sprintf("port %d of the nodes is that of the listener which Ingresses share", s.hostPort)
	case oldest != nil && oldest.Namespace != i.Namespace && compareAge(oldest, i) < 0:
		return fmt.Sprintf("port %d of the nodes belongs to the Ingress %s, which is older", s.hostPort, oldest.Key())
	}
	names := configNames(i.Key())
	ask := envoyres.PortAsker{
		Operators: c.sharedService().Namespace,
		IsMine:    func(o *envoyres.Object) bool { return o.Namespace == i.Namespace && names.Has(o.Key()) },
		Shares:    func(o *envoyres.Object) bool { return o.Namespace == i.Namespace && c.competes(o, s.hostPort) },
		Yields: func(o *envoyres.Object) bool { // and so does one of the namespace, which has shared it, and goes
			return o.Key() == c.sharedService() || c.competes(o, s.hostPort) || o.Namespace == i.Namespace && o.Controller.Kind() == "Ingress"
		},
	}
	if of := ask.HolderOf(s.hostPort, c.configs); of != nil {
		return fmt.Sprintf("port %d of the nodes belongs to the %s, which has it already", s.hostPort, of.Describe())
	}
	return ""
}

// hostPortAskedFor are the notices of an Ingress that has its port of the nodes: Ingresses of other namespaces ask for it, too.
func (c *controller) hostPortAskedFor(i *ingress, s settings) []envoyres.Notice {
	if !c.Config.IngressHostNetworkEnabled || s.shared || c.Config.IngressJoinNamespaces {
		return nil
	}
	owners := c.hostPortOwners()
	if oldest := owners.oldest[s.hostPort]; oldest == nil || oldest.Key() != i.Key() {
		return nil
	}
	var by []envoy.Name
	for _, other := range owners.asking[s.hostPort] {
		if other.Namespace != i.Namespace {
			by = append(by, nameOf(other.Key()))
		}
	}
	if len(by) == 0 {
		return nil
	}
	return []envoyres.Notice{askedFor(by, fmt.Sprintf("port %d of the nodes, which this one has", s.hostPort))}
}

// logHostPorts says in one line how many Ingresses are not served at the ports of the nodes that they ask for, as a leader begins.
func (c *controller) logHostPorts() {
	if !c.Config.IngressHostNetworkEnabled {
		return
	}
	without := 0
	for i := range c.ingresses.All() {
		if i.DeletionTimestamp.IsZero() && isManaged(i, c.byDefault()) && c.hostPortProblem(i, settingsOf(i, c.Config)) != "" {
			without++
		}
	}
	if without > 0 {
		c.Log.Warn("ports of the nodes are those of components of the cluster, or of older objects of other namespaces; ingress-join-namespaces shares the latter, as the original does",
			"ingresses", without)
	}
}

// competes reports whether a CiliumEnvoyConfig is that of an Ingress which asks for a port. Of one that is being deleted, or is no longer served, the
// configuration may be there for long.
func (c *controller) competes(o *envoyres.Object, port uint32) bool {
	i, exists := c.ingresses.Get(slim.Key{Namespace: o.Namespace.String(), Name: o.Controller.Name()})
	if !exists || o.Controller.Kind() != "Ingress" || !i.DeletionTimestamp.IsZero() || !isManaged(i, c.byDefault()) {
		return false
	}
	s := settingsOf(i, c.Config)
	return !s.shared && s.hostPort == port
}

// compareAge sorts Ingresses: the older first, then by namespace and name.
func compareAge(a, b *ingress) int {
	return cmp.Or(cmp.Compare(a.CreationTimestamp, b.CreationTimestamp), cmp.Compare(a.Namespace.String(), b.Namespace.String()), cmp.Compare(a.Name, b.Name))
}

// hostPortOwners are which Ingresses have the ports of the nodes.
type hostPortOwners struct {
	oldest    map[uint32]*ingress   // of those with a load balancer of their own
	asking    map[uint32][]*ingress // all of these
	anyShares bool
	byDefault bool // Ingresses without a class are managed
}

// at is the oldest Ingress at a port, nil for none, and whether the listener that Ingresses share is there.
func (o *hostPortOwners) at(port uint32, shared ports) (oldest *ingress, isShared bool) {
	return o.oldest[port], o.anyShares && (port == shared.http || port == shared.https || port == shared.passthrough)
}

// knownOwners keeps the hostPortOwners until an Ingress changes: there may be thousands, and each asks.
type knownOwners struct {
	mu      sync.Mutex
	changes uint64
	owners  *hostPortOwners // nil: they are to be found anew
}

// forget has the owners found anew. It is called once the store has a change.
func (k *knownOwners) forget() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.changes++
	k.owners = nil
}

func (c *controller) hostPortOwners() *hostPortOwners {
	k, byDefault := &c.owners, c.byDefault()
	k.mu.Lock()
	owners, changes := k.owners, k.changes
	k.mu.Unlock()
	if owners != nil && owners.byDefault == byDefault {
		return owners
	}
	owners = &hostPortOwners{oldest: map[uint32]*ingress{}, asking: map[uint32][]*ingress{}, byDefault: byDefault}
	for i := range c.ingresses.All() {
		if !i.DeletionTimestamp.IsZero() || !isManaged(i, byDefault) {
			continue
		}
		s := settingsOf(i, c.Config)
		if s.shared {
			owners.anyShares = true
			continue
		}
		owners.asking[s.hostPort] = append(owners.asking[s.hostPort], i)
		if has := owners.oldest[s.hostPort]; has == nil || compareAge(i, has) < 0 {
			owners.oldest[s.hostPort] = i
		}
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.changes == changes {
		k.owners = owners
	}
	return owners
}

// hostPortsChanged are the Ingresses that may get or lose a port of the nodes as another one changes. The one that is to have a port waits for one that is to give it up.
func (c *controller) hostPortsChanged() (keys []slim.Key) {
	if !c.Config.IngressHostNetworkEnabled {
		return nil
	}
	for i := range c.ingresses.All() {
		if !settingsOf(i, c.Config).shared {
			keys = append(keys, i.Key())
		}
	}
	return keys
}

// hasLostPort reports whether the configuration of an Ingress, as it is, listens at a port of the nodes that it is not to have any more.
func (c *controller) hasLostPort(i *ingress, port uint32) bool {
	key, _ := configNames(i.Key()).Choose(c.configs, ownerOf(i, true), c.Cluster.Release)
	has, exists := c.configs.Get(key)
	return exists && slices.ContainsFunc(has.Spec.HostPorts, func(p uint32) bool { return p != port })
}
