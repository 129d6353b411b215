// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package clusterpool

import (
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	v2 "github.com/skep-operator/skep/resources/api/v2"
)

// reported are the reported problems of nodes that affect other nodes.
type reported struct {
	problems map[string]string
	asOf     uint64 // the value of claims.changes
	lacking  bool   // a node has no block since none is free
}

// reportProblems updates health, and logs new problems with an Event for each node that cannot
// be decoded. The caller has the lock.
func (c *controller) reportProblems() {
	asOf, lacking := c.Alloc.claims.changes, c.Alloc.countRefused(exhausted) > 0
	if c.reported.asOf == asOf && c.reported.lacking == lacking {
		return
	}
	before, now := c.reported.problems, c.Alloc.claims.problems(lacking)
	c.reported = reported{now, asOf, lacking}
	if maps.Equal(now, before) {
		return
	}
	part := c.Health.Child("nodes")
	if len(now) == 0 {
		part.OK("")
		return
	}
	part.Degraded(describe(now), nil)
	added := maps.Clone(now)
	maps.DeleteFunc(added, func(name, problem string) bool { return before[name] == problem })
	if len(added) == 0 {
		return
	}
	c.Log.Warn("pod CIDRs of CiliumNodes are refused or cannot be decoded", "nodes", len(added), "first", describe(added))
	for name := range added {
		if n := c.Alloc.nodes[name]; n != nil && n.Undecoded != "" {
			c.Events.Warning(n.reference(), "PodCIDRsUndecodable", n.Undecoded)
		}
	}
}

func (o observed) reference() corev1.ObjectReference {
	return corev1.ObjectReference{APIVersion: v2.SchemeGroupVersion.String(), Kind: "CiliumNode", Name: o.Name, UID: types.UID(o.UID)}
}

// problems are the problems of nodes that affect other nodes, by name. What nodes show outside of their podCIDRs is none
// unless a node is lacking a block.
func (c *claims) problems(lacking bool) map[string]string {
	all := map[string]string{}
	for _, name := range c.undecoded {
		all[name] = "cannot be decoded"
	}
	for name, claim := range c.byNode {
		switch {
		case claim.problem != "":
			all[name] = claim.problem
		case lacking && claim.elsewhere > 0:
			all[name] = fmt.Sprintf("it shows %d CIDRs outside of spec.ipam.podCIDRs, first %s, which are given to no other node, and none is free: remove those from spec.ipam.pools.allocated that no pod uses",
				claim.elsewhere, claim.cidrs[len(claim.cidrs)-claim.elsewhere])
		}
	}
	return all
}

// describe returns one line about problems. There is at least one.
func describe(problems map[string]string) string {
	names := slices.Sorted(maps.Keys(problems))
	text := fmt.Sprintf("CiliumNode %s: %s", names[0], problems[names[0]])
	if len(names) > 1 {
		text += fmt.Sprintf("; and %d more", len(names)-1)
	}
	return text
}
