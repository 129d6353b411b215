// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package multipool

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/skep-operator/skep/resources/domain/alloc"
	"github.com/skep-operator/skep/resources/domain/cidr"
	"github.com/skep-operator/skep/resources/stream/ciliumio"
)

// conversion is a CiliumNode whose podCIDRs become CIDRs of a pool, or why they cannot.
type conversion struct {
	name, uid string
	obstacle  string
}

// conversions are the nodes with podCIDRs, the oldest first. Of two that have a part of each other's the older one is
// converted: the podCIDRs of the younger one stay as they are, so that it loses none.
func conversions(nodes []*ciliumio.Node) (list []conversion) {
	slices.SortFunc(nodes, func(x, y *ciliumio.Node) int {
		return cmp.Or(x.CreationTimestamp.Time().Compare(y.CreationTimestamp.Time()), cmp.Compare(x.Name, y.Name))
	})
	older := alloc.NewSightings[string]()
	for _, n := range nodes {
		if len(n.Spec.IPAM.PodCIDRs) > 0 && n.DeletionTimestamp.IsZero() && !n.IgnoresIPAM() {
			list = append(list, conversion{n.Name, n.UID.String(), obstacleOf(n, older)})
		}
		older.Set(n.Name, slices.Concat(n.PodBlocks(), n.PoolBlocks())...)
	}
	return list
}

// obstacleOf is why the podCIDRs of a node cannot become CIDRs of a pool, "" if they can.
func obstacleOf(n *ciliumio.Node, older *alloc.Sightings[string]) string {
	for _, text := range n.Spec.IPAM.PodCIDRs {
		c, ok := cidr.Parse(text)
		if !ok {
			return "invalid CIDR address: " + bounded(text)
		}
		var holders []string
		for other, name := range older.Overlapping(c) {
			if !cidr.IsVast(other) {
				holders = append(holders, name)
			}
		}
		if len(holders) > 0 {
			return fmt.Sprintf("CIDR %s has already been allocated to the older CiliumNode %s", c, slices.Min(holders))
		}
	}
	return ""
}

// convert moves podCIDRs of a CiliumNode to its CIDRs of a pool. What else it has stays.
func convert(u *unstructured.Unstructured, pool string) error {
	texts, _, err := unstructured.NestedStringSlice(u.Object, "spec", "ipam", "podCIDRs")
	if err != nil || len(texts) == 0 {
		return err
	}
	list, err := allocatedIn(u)
	if err != nil {
		return err
	}
	i := slices.IndexFunc(list, func(of ciliumio.PoolAllocation) bool { return of.Pool == pool })
	if i < 0 {
		i, list = len(list), append(list, ciliumio.PoolAllocation{Pool: pool})
	}
	listed := prefixesOf(list)
	for _, text := range texts {
		c, ok := cidr.Parse(text)
		if !ok {
			return fmt.Errorf("invalid CIDR address: %s", bounded(text))
		}
		if !slices.Contains(listed, c) {
			list[i].CIDRs = append(list[i].CIDRs, c.String())
			listed = append(listed, c)
		}
	}
	if err := setAllocated(u, list); err != nil {
		return err
	}
	unstructured.RemoveNestedField(u.Object, "spec", "ipam", "podCIDRs")
	return nil
}

func prefixesOf(list []ciliumio.PoolAllocation) (all []netip.Prefix) {
	for _, of := range list {
		for _, text := range of.CIDRs {
			if c, ok := cidr.Parse(text); ok {
				all = append(all, c)
			}
		}
	}
	return all
}
