// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package gateway

import (
	"fmt"
	"iter"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/skep-operator/skep/resources/cluster/release"
	"github.com/skep-operator/skep/resources/domain/cidr"
	"github.com/skep-operator/skep/resources/domain/envoy"
	"github.com/skep-operator/skep/resources/stream"
	"github.com/skep-operator/skep/resources/stream/slim"
)

// node is what is read of a Node.
type node struct {
	nodeMeta `json:"metadata"`
	Status   struct {
		Addresses []slim.NodeAddress `json:"addresses"`
	} `json:"status"`
}

type nodeMeta struct {
	slim.Meta
	Labels slim.Labels `json:"labels"`
}

// address is the first address at which a Node is reached, "" without one, or if the labels do not select it.
func (n *node) address(selector map[string]string) string {
	for key, value := range selector {
		if has, exists := n.Labels.Lookup(key); !exists || has != value {
			return ""
		}
	}
	for _, a := range n.Status.Addresses {
		if ip, ok := cidr.ParseHost(a.Address); ok {
			return ip.String()
		}
	}
	return ""
}

// problem is what a Node has as addresses and is not reached at, "" for nothing. Host names are none of these.
func (n *node) problem() string {
	for _, a := range n.Status.Addresses {
		_, err := netip.ParseAddr(a.Address)
		if _, ok := cidr.ParseHost(a.Address); err == nil && !ok {
			return fmt.Sprintf("its status has an address at which no node is reached, and it is left out: %.60q", a.Address)
		}
	}
	return ""
}

// maxAddresses is how many addresses the status of a Gateway has.
const maxAddresses = 16

// addressesOfNodes are the addresses of a Gateway that is reached at nodes: the first ones by their bytes.
func addressesOfNodes(nodes iter.Seq[*node], selector map[string]string) (all []gatewayv1.GatewayStatusAddress) {
	var found []string
	for n := range nodes {
		if a := n.address(selector); a != "" {
			found = append(found, a)
		}
	}
	slices.Sort(found)
	found = slices.Compact(found)
	for _, a := range found[:min(len(found), maxAddresses)] {
		all = append(all, gatewayv1.GatewayStatusAddress{Type: new(gatewayv1.IPAddressType), Value: a})
	}
	return all
}

// nodeSelector is which nodes listen; nil for all.
func (c *controller) nodeSelector() map[string]string {
	if !c.Config.GatewayAPIHostNetworkEnabled {
		return nil
	}
	return envoy.ParseNodeSelector(c.Config.GatewayAPIHostNetworkNodeSelector)
}

// setNodeAddresses sets what is known of the addresses of a Gateway without a load balancer. While Nodes are not known, those that its
// status has stay.
func (c *controller) setNodeAddresses(o *outcome, g *gateway, config serviceConfig) {
	o.addressless = c.Config.GatewayAPIHostNetworkEnabled || config.Type == corev1.ServiceTypeNodePort
	if o.atNodes = o.addressless && release.GatewaysAtNodes.In(c.Cluster.Release); !o.atNodes {
		c.dropNodes(g.Key())
		return
	}
	if store := c.nodes.Need(g.Key()); store != nil {
		o.addresses = addressesOfNodes(store.All(), c.nodeSelector())
	} else {
		o.addresses = g.Status.Addresses
	}
}

// dropNodes is for a Gateway that is not reached at nodes. Without another one Nodes are not watched any more.
func (c *controller) dropNodes(key slim.Key) {
	if c.nodes.Drop(key); !c.oddNodes.Any() {
		return
	}
	for g := range c.gateways.All() {
		if c.nodes.Needs(g.Key()) {
			return
		}
	}
	c.oddNodes.Clear()
}

// nodeChanged is the Gateways that are reached at nodes, if the address of one has changed.
func (c *controller) nodeChanged(ch stream.Change[node]) (keys []slim.Key) {
	now, problem := "", ""
	if ch.Kind != stream.Delete {
		now, problem = ch.Object.address(c.nodeSelector()), ch.Object.problem()
	}
	if c.oddNodes.Set(ch.Key.Name, problem) {
		c.Log.Warn("an address of a Node is left out", "node", ch.Key.Name, "reason", problem)
	}
	if c.seen.nodes[ch.Key.Name] == now {
		return nil
	}
	if c.seen.nodes[ch.Key.Name] = now; now == "" {
		delete(c.seen.nodes, ch.Key.Name)
	}
	for g := range c.gateways.All() {
		if c.nodes.Needs(g.Key()) {
			keys = append(keys, g.Key())
		}
	}
	return keys
}
