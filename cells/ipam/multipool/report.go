// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package multipool

import (
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/skep-operator/skep/resources/api/v2alpha1"
)

// reported are the reported problems of pools and of nodes that affect others.
type reported struct{ pools, nodes map[string]string }

// report updates health, and logs new problems with an Event for each pool. The caller has the lock.
func (c *controller) report() {
	if !c.alloc.synced {
		return
	}
	before := c.reported
	c.reported = reported{c.alloc.poolProblems(), c.alloc.claims.allProblems()}
	for _, name := range c.reportPart("pools", "CiliumPodIPPool", before.pools, c.reported.pools) {
		c.Events.Warning(c.alloc.pools[name].reference(), c.alloc.pools[name].problem.reason(), c.reported.pools[name])
	}
	c.reportPart("nodes", "CiliumNode", before.nodes, c.reported.nodes)
}

// reportPart returns the names of what has a new problem.
func (c *controller) reportPart(part, kind string, before, now map[string]string) (added []string) {
	if maps.Equal(before, now) {
		return nil
	}
	if len(now) == 0 {
		c.Health.Child(part).OK("")
		return nil
	}
	c.Health.Child(part).Degraded(describe(kind, now), nil)
	news := maps.Clone(now)
	maps.DeleteFunc(news, func(name, problem string) bool { return before[name] == problem })
	if len(news) > 0 {
		c.Log.Warn("objects of pools are refused or cannot be decoded", "kind", kind, "objects", len(news), "first", describe(kind, news))
	}
	return slices.Sorted(maps.Keys(news))
}

func (p *pool) reference() corev1.ObjectReference {
	return corev1.ObjectReference{APIVersion: v2alpha1.SchemeGroupVersion.String(), Kind: podIPPools.Name(), Name: p.Name, UID: types.UID(p.UID)}
}

// poolProblems are the pools that are not in effect as their objects say.
func (a *allocator) poolProblems() map[string]string {
	problems := map[string]string{}
	for name, p := range a.pools {
		if p.problem.text != "" {
			problems[name] = bounded(p.problem.text)
		}
	}
	return problems
}

// reason is that of the Event about the problem.
func (p poolProblem) reason() string {
	if p.overlaps {
		return "PoolOverlaps"
	}
	return "PoolInvalid"
}

// describe returns one line about problems. There is at least one.
func describe(kind string, problems map[string]string) string {
	names := slices.Sorted(maps.Keys(problems))
	text := fmt.Sprintf("%s %s: %s", kind, names[0], problems[names[0]])
	if len(names) > 1 {
		text += fmt.Sprintf("; and %d more", len(names)-1)
	}
	return text
}
