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
}

// reportProblems updates health, and logs new problems with an Event for each node that cannot
// be decoded. The caller has the lock.
func (c *controller) reportProblems() {
	if c.reported.asOf == c.Alloc.claims.changes {
		return
	}
	before, now := c.reported.problems, c.Alloc.claims.problems()
	c.reported = reported{now, c.Alloc.claims.changes}
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

// problems are the problems of nodes that affect other nodes, by name.
func (c *claims) problems() map[string]string {
	all := map[string]string{}
	for _, name := range c.undecoded {
		all[name] = "cannot be decoded"
	}
	for name, claim := range c.byNode {
		if claim.problem != "" {
			all[name] = claim.problem
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
