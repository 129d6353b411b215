// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package bgp

import (
	"cmp"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/skep-operator/skep/resources/stream/slim"
)

// planner decides what becomes of CiliumBGPNodeConfigs. The methods that observe a change return the names of the
// CiliumBGPNodeConfigs that it concerns.
type planner struct {
	nodes       map[string]slim.Labels
	configs     []*config // the oldest first
	overrides   map[string]*override
	nodeConfigs map[string]*nodeConfig
	ids         *routerIDs // nil: agents choose
}

func newPlanner(ids *routerIDs) *planner {
	return &planner{nodes: map[string]slim.Labels{}, overrides: map[string]*override{}, nodeConfigs: map[string]*nodeConfig{}, ids: ids}
}

// config is a CiliumBGPClusterConfig.
type config struct {
	*clusterConfig
	// selector is nil if it is not known which nodes are selected.
	selector labels.Selector
	// problem is why the CiliumBGPClusterConfig has no effect, "" if it has.
	problem string
}

func newConfig(o *clusterConfig) *config {
	c := &config{clusterConfig: o}
	switch selector := o.Spec.NodeSelector; {
	case o.CannotDecode("spec"):
		c.problem = o.DecodeError().Error()
	case selector == nil:
		c.selector = labels.Everything()
	default:
		var err error
		if c.selector, err = selector.AsSelector(); err != nil {
			c.selector, c.problem = nil, fmt.Sprintf("spec.nodeSelector is not valid: %v", err)
		}
	}
	return c
}

// deleting reports whether it is being deleted: garbage collection deletes what it owns.
func (c *config) deleting() bool { return !c.DeletionTimestamp.IsZero() }

func oldestFirst(a, b *config) int {
	return cmp.Or(cmp.Compare(a.CreationTimestamp, b.CreationTimestamp), strings.Compare(a.Name, b.Name))
}

// setConfig observes a CiliumBGPClusterConfig. It may concern each node.
func (p *planner) setConfig(o *clusterConfig) []string {
	p.dropConfig(o.Name)
	c := newConfig(o)
	i, _ := slices.BinarySearchFunc(p.configs, c, oldestFirst)
	p.configs = slices.Insert(p.configs, i, c)
	return p.names()
}

func (p *planner) removeConfig(name string) []string {
	p.dropConfig(name)
	return p.names()
}

func (p *planner) dropConfig(name string) {
	p.configs = slices.DeleteFunc(p.configs, func(c *config) bool { return c.Name == name })
}

// config is the one with a name, nil if there is none.
func (p *planner) config(name string) *config {
	for _, c := range p.configs {
		if c.Name == name {
			return c
		}
	}
	return nil
}

// names are all nodes, and all CiliumBGPNodeConfigs without one.
func (p *planner) names() []string {
	names := slices.Collect(maps.Keys(p.nodes))
	for name := range p.nodeConfigs {
		if _, isNode := p.nodes[name]; !isNode {
			names = append(names, name)
		}
	}
	return names
}

// setNode observes a CiliumNode. known reports whether it had these labels already.
func (p *planner) setNode(name string, is slim.Labels) (known bool) {
	was, exists := p.nodes[name]
	p.nodes[name] = is
	return exists && was == is
}

func (p *planner) removeNode(name string) { delete(p.nodes, name) }

func (p *planner) setOverride(o *override) []string {
	p.ids.unwant(p.overrides[o.Name])
	p.overrides[o.Name] = o
	p.ids.want(o)
	return append(p.ids.drainWaiting(), o.Name)
}

func (p *planner) removeOverride(name string) []string {
	p.ids.unwant(p.overrides[name])
	delete(p.overrides, name)
	return append(p.ids.drainWaiting(), name)
}

func (p *planner) setNodeConfig(o *nodeConfig) []string {
	p.nodeConfigs[o.Name] = o
	p.ids.observe(o)
	return append(p.ids.drainWaiting(), o.Name)
}

func (p *planner) removeNodeConfig(name string) []string {
	delete(p.nodeConfigs, name)
	p.ids.forget(name)
	if !slices.ContainsFunc(p.configs, func(c *config) bool { return p.selects(c, name) }) {
		_ = p.ids.plan(name, nil) // nothing is to be chosen
	}
	return append(p.ids.drainWaiting(), name)
}

// markSynced starts the allocation of router IDs, as all objects are known.
func (p *planner) markSynced() {
	p.ids.restore(slices.SortedFunc(maps.Values(p.nodeConfigs), func(a, b *nodeConfig) int {
		return cmp.Or(cmp.Compare(a.CreationTimestamp, b.CreationTimestamp), strings.Compare(a.Name, b.Name))
	}))
}

// verb is what is done to a CiliumBGPNodeConfig.
type verb int

const (
	leave verb = iota
	create
	update
	remove
)

// action is what becomes of the CiliumBGPNodeConfig of a node.
type action struct {
	verb    verb
	reason  string // of leave
	owner   *config
	routers []instance
	current *nodeConfig // nil for create
}

// Why nothing is written.
const (
	notSelected      = "none: no CiliumBGPClusterConfig selects the node"
	upToDate         = "none: the CiliumBGPNodeConfig is up to date"
	nodeDeleting     = "waits: the CiliumBGPNodeConfig is being deleted"
	foreignOwner     = "none: the CiliumBGPNodeConfig exists, and belongs to no CiliumBGPClusterConfig that exists"
	ownerDeleting    = "none: the CiliumBGPClusterConfig is being deleted, and its CiliumBGPNodeConfigs with it"
	ownerHasNoEffect = "none: the CiliumBGPClusterConfig has no effect, its CiliumBGPNodeConfigs stay as they are"
)

// decide returns what becomes of the CiliumBGPNodeConfig with a name. The error is why a router ID is missing.
func (p *planner) decide(name string) (action, error) {
	current := p.nodeConfigs[name]
	if current == nil {
		return p.decideNew(name)
	}
	owner := p.ownerOf(current)
	switch {
	case !current.DeletionTimestamp.IsZero():
		return action{reason: nodeDeleting}, nil
	case owner == nil:
		return action{reason: foreignOwner}, nil
	case owner.deleting():
		return action{reason: ownerDeleting}, nil
	case owner.selector == nil:
		return action{reason: ownerHasNoEffect}, nil
	case !p.selects(owner, name):
		_ = p.ids.plan(name, nil)
		return action{verb: remove, owner: owner, current: current}, nil
	}
	routers, err := p.desired(owner, name)
	if err != nil {
		return action{owner: owner}, err
	}
	if current.isOwnedBy(owner.clusterConfig) && !current.CannotDecode("spec") && sameInstances(current.Spec.BGPInstances, routers) {
		return action{reason: upToDate, owner: owner}, nil
	}
	return action{verb: update, owner: owner, routers: routers, current: current}, nil
}

func (p *planner) decideNew(name string) (action, error) {
	owner := p.firstFor(name)
	if owner == nil {
		_ = p.ids.plan(name, nil)
		return action{reason: notSelected}, nil
	}
	routers, err := p.desired(owner, name)
	if err != nil {
		return action{owner: owner}, err
	}
	return action{verb: create, owner: owner, routers: routers}, nil
}

// firstFor is the CiliumBGPClusterConfig that gets a node that has none yet, nil for none.
func (p *planner) firstFor(name string) *config {
	i := slices.IndexFunc(p.configs, func(c *config) bool { return !c.deleting() && p.selects(c, name) })
	if i < 0 {
		return nil
	}
	return p.configs[i]
}

// selects reports whether a CiliumBGPClusterConfig selects a node that exists.
func (p *planner) selects(c *config, name string) bool {
	is, exists := p.nodes[name]
	return exists && c.selector != nil && c.selector.Matches(is)
}

// owners are the names of the CiliumBGPClusterConfigs in the owner references.
func (n *nodeConfig) owners() (names []string) {
	for i := range n.Owners {
		if n.Owners[i].Kind.String() == clusterConfigs.Name() {
			names = append(names, n.Owners[i].Name)
		}
	}
	return names
}

// isOwnedBy reports whether an owner reference is that of the CiliumBGPClusterConfig itself, not of an older one of its name.
func (n *nodeConfig) isOwnedBy(c *clusterConfig) bool {
	return slices.ContainsFunc(n.Owners, func(o slim.OwnerReference) bool {
		return o.Kind.String() == clusterConfigs.Name() && o.Name == c.Name && o.UID == c.UID
	})
}

// ownerOf is the CiliumBGPClusterConfig that a CiliumBGPNodeConfig belongs to, by name, nil if it belongs to none.
func (p *planner) ownerOf(n *nodeConfig) *config {
	for _, name := range n.owners() {
		if c := p.config(name); c != nil {
			return c
		}
	}
	return nil
}

// desired are the routers of a node.
func (p *planner) desired(c *config, name string) ([]instance, error) {
	o := p.overrides[name]
	if o == nil {
		o = &override{}
	}
	if o.CannotDecode("spec") {
		return nil, &overrideError{name, fmt.Sprintf("it has no effect, and the CiliumBGPNodeConfig stays as it is: %v", o.DecodeError())}
	}
	routers := make([]instance, len(c.Spec.BGPInstances))
	for i := range c.Spec.BGPInstances {
		routers[i] = merge(&c.Spec.BGPInstances[i], o.instance(c.Spec.BGPInstances[i].Name))
	}
	return routers, p.ids.plan(name, routers)
}

// instance is what an override says of a router, nothing if it does not name it.
func (o *override) instance(name slim.String) *instance {
	for i := range o.Spec.BGPInstances {
		if o.Spec.BGPInstances[i].Name == name {
			return &o.Spec.BGPInstances[i]
		}
	}
	return &instance{}
}

// merge is a router of a CiliumBGPClusterConfig with what an override says of it.
func merge(from, with *instance) instance {
	merged := instance{
		Name: from.Name, LocalASN: cmp.Or(with.LocalASN, from.LocalASN), LocalPort: cmp.Or(with.LocalPort, from.LocalPort), RouterID: with.RouterID,
	}
	for _, peer := range from.Peers {
		peer.LocalAddress = slim.String{}
		for _, w := range with.Peers {
			if w.Name == peer.Name {
				peer.LocalAddress = w.LocalAddress
			}
		}
		merged.Peers = append(merged.Peers, peer)
	}
	return merged
}

// sameInstances reports whether two lists say the same in the same order.
func sameInstances(a, b []instance) bool {
	return slices.EqualFunc(a, b, func(a, b instance) bool {
		peers := slices.EqualFunc(a.Peers, b.Peers, samePeer)
		a.Peers, b.Peers = nil, nil
		return peers && reflect.DeepEqual(a, b)
	})
}

func samePeer(a, b peer) bool {
	refs := a.PeerConfigRef == nil && b.PeerConfigRef == nil ||
		a.PeerConfigRef != nil && b.PeerConfigRef != nil && a.PeerConfigRef.effective() == b.PeerConfigRef.effective()
	a.PeerConfigRef, b.PeerConfigRef = nil, nil
	return refs && reflect.DeepEqual(a, b)
}

// effective is the reference with the defaults of v2alpha1. Those of v2 have a name alone.
func (r peerConfigRef) effective() peerConfigRef {
	return peerConfigRef{cmp.Or(r.Group, defaultRef.Group), cmp.Or(r.Kind, defaultRef.Kind), r.Name}
}

var defaultRef = peerConfigRef{Group: slim.MakeString(peerConfigs.Resource().Group), Kind: slim.MakeString(peerConfigs.Name())}
