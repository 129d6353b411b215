// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package main

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v2 "github.com/skep-operator/skep/resources/api/v2"
)

// nodesUnderFaults are nodes that come, go, lose their CIDRs by hand, and leave a
// CiliumNode behind.
type nodesUnderFaults struct {
	*turmoil
	names []string // that have a Node and a CiliumNode
	judge *judge
}

// mostNodes is how many there are at once, of blocks for 64.
const mostNodes = 30

func podCIDRsUnderFaults(f *turmoil) underFaults {
	n := &nodesUnderFaults{turmoil: f, judge: newJudge(f.world)}
	f.follows(v2.CiliumNodeResource)
	return underFaults{
		name: "pod CIDRs and left-over CiliumNodes",
		args: []string{
			"--enable-ipv6=true", "--cluster-pool-ipv4-cidr=10.0.0.0/22", "--cluster-pool-ipv4-mask-size=28",
			"--cluster-pool-ipv6-cidr=fd00::/106", "--cluster-pool-ipv6-mask-size=112",
		},
		churn: []func(){n.come, n.come, n.leave, n.leave, n.lookAt, n.lose, n.loseFamily, n.blame},
		rest:  n.rest,
		missing: func() error {
			if n.judge.usedAgain() == 0 {
				return errors.New("no block was used again")
			}
			return nil
		},
		end: func() { n.judge.finish() },
	}
}

// newNode makes a Node and its CiliumNode.
func (f *turmoil) newNode() string {
	f.t.Helper()
	name := fmt.Sprint("node-", f.number())
	f.node(name)
	f.want(f.ciliumNode(name), "CiliumNode "+name)
	return name
}

func (n *nodesUnderFaults) come() {
	if len(n.names) < mostNodes {
		n.names = append(n.names, n.newNode())
	}
}

// leave takes a Node away, and half of the time its CiliumNode.
func (n *nodesUnderFaults) leave() {
	i, ok := one(n.r, n.names)
	if !ok || len(n.names) < mostNodes/2 {
		return
	}
	name := n.names[i]
	n.names = slices.Delete(n.names, i, i+1)
	n.condemn(n.nodes()[name].GetUID(), "CiliumNode "+name+", whose Node is gone,")
	if err := n.core.CoreV1().Nodes().Delete(n.t.Context(), name, metav1.DeleteOptions{}); err != nil {
		n.t.Fatal(err)
	}
	if n.r.IntN(2) == 0 {
		n.deleteNodes(name)
	}
}

func (n *nodesUnderFaults) edit(patch string, subresources ...string) {
	if i, ok := one(n.r, n.names); ok {
		n.patchIfThere(v2.CiliumNodeResource, "", n.names[i], patch, subresources...)
	}
}

func (n *nodesUnderFaults) lookAt() {
	n.edit(fmt.Sprintf(`{"metadata":{"annotations":{"example.com/seen":"%d"}}}`, n.number()))
}

func (n *nodesUnderFaults) lose() { n.edit(`{"spec":{"ipam":{"podCIDRs":null}}}`) }

func (n *nodesUnderFaults) blame() {
	n.edit(`{"status":{"ipam":{"operator-status":{"error":"said by hand"}}}}`, "status")
}

// loseFamily takes the second CIDR of a node.
func (n *nodesUnderFaults) loseFamily() {
	i, ok := one(n.r, n.names)
	if !ok {
		return
	}
	if has := podCIDRs(n.nodes()[n.names[i]]); len(has) == 2 {
		n.patchIfThere(v2.CiliumNodeResource, "", n.names[i], fmt.Sprintf(`{"spec":{"ipam":{"podCIDRs":[%q]}}}`, has[0]))
	}
}

// rest: every node has one CIDR of each family, and no error.
func (n *nodesUnderFaults) rest() error {
	var errs []error
	for name, u := range n.nodes() {
		has := podCIDRs(u)
		if len(has) != 2 || !netip.MustParsePrefix(has[0]).Addr().Is4() || !netip.MustParsePrefix(has[1]).Addr().Is6() || nodeError(u) != "" {
			errs = append(errs, fmt.Errorf("node %s has %q and says %q", name, has, nodeError(u)))
		}
	}
	return errors.Join(errs...)
}
