// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package bgp

import (
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/skep-operator/skep/resources/stream/slim"
	"github.com/skep-operator/skep/runtime/printable"
)

// The types of conditions. A condition that is True is a problem.
const (
	conditionConflict    = "cilium.io/ConflictingClusterConfig"
	conditionMissingPeer = "cilium.io/MissingPeerConfigs"
	conditionNoNode      = "cilium.io/NoMatchingNode"
	conditionNoSecret    = "cilium.io/MissingAuthSecret"
)

// reasons of conditions, by type.
var reasons = map[string]string{
	conditionConflict: "ConflictingClusterConfigs", conditionMissingPeer: "MissingPeerConfigs",
	conditionNoNode: "NoMatchingNode", conditionNoSecret: "MissingAuthSecret",
}

// The conditions of each kind, in the order of their types.
var (
	configConditions = []string{conditionConflict, conditionMissingPeer, conditionNoNode}
	peerConditions   = []string{conditionNoSecret}
)

// findings are what is wrong with an object, by type of condition. One that is not there is "".
type findings map[string]string

// configFindings are those of a CiliumBGPClusterConfig that has an effect.
func (p *planner) configFindings(c *config, peerExists func(name string) bool) findings {
	matches := false
	conflicts, foreign := map[string]bool{}, map[string]bool{}
	for name := range p.nodes {
		if !p.selects(c, name) {
			continue
		}
		matches = true
		owners, isForeign := p.conflicts(c, name)
		for _, owner := range owners {
			conflicts[owner] = true
		}
		if isForeign {
			foreign[name] = true
		}
	}
	f := findings{}
	var texts []string
	if len(conflicts) > 0 {
		texts = append(texts, "Selecting the same node(s) with ClusterConfig(s): "+list(conflicts))
	}
	if len(foreign) > 0 {
		texts = append(texts, "CiliumBGPNodeConfig(s) without a ClusterConfig exist: "+list(foreign))
	}
	f[conditionConflict] = strings.Join(texts, "; ")
	if missing := c.missingPeers(peerExists); len(missing) > 0 {
		f[conditionMissingPeer] = "Referenced CiliumBGPPeerConfig(s) are missing: " + list(missing)
	}
	if !matches {
		f[conditionNoNode] = "No node matches spec.nodeSelector"
	}
	return f
}

// conflicts are the CiliumBGPClusterConfigs that have a node which another one selects, and whether its CiliumBGPNodeConfig has no
// owner.
func (p *planner) conflicts(c *config, name string) (owners []string, foreign bool) {
	current := p.nodeConfigs[name]
	if current == nil || p.ownerOf(current) == c {
		return nil, false
	}
	all := current.owners()
	for _, owner := range all {
		if owner != c.Name && !p.gives(owner, name) {
			owners = append(owners, owner)
		}
	}
	return owners, len(all) == 0
}

// finding is what a node contributes to the findings of a CiliumBGPClusterConfig.
type finding struct {
	selected, foreign bool
	owners            string
}

// findingsOf are what a node contributes to those of each CiliumBGPClusterConfig. Those of most changes are the same before and
// after: then no CiliumBGPClusterConfig has to be inspected, which takes a look at all nodes.
func (p *planner) findingsOf(name string) map[string]finding {
	all := map[string]finding{}
	for _, c := range p.configs {
		if p.selects(c, name) {
			owners, foreign := p.conflicts(c, name)
			all[c.Name] = finding{true, foreign, strings.Join(owners, " ")}
		}
	}
	return all
}

// gives reports whether the CiliumBGPNodeConfig of a node is about to be deleted, as its owner does not select the node any more.
func (p *planner) gives(owner, name string) bool {
	c := p.config(owner)
	return c != nil && c.selector != nil && !p.selects(c, name)
}

// peerNames are the CiliumBGPPeerConfigs that a CiliumBGPClusterConfig refers to.
func (c *clusterConfig) peerNames() (names []string) {
	for i := range c.Spec.BGPInstances {
		for _, peer := range c.Spec.BGPInstances[i].Peers {
			if peer.PeerConfigRef != nil {
				names = append(names, peer.PeerConfigRef.Name.String())
			}
		}
	}
	return names
}

func (c *config) missingPeers(exists func(name string) bool) map[string]bool {
	missing := map[string]bool{}
	for _, name := range c.peerNames() {
		if !exists(name) {
			missing[name] = true
		}
	}
	return missing
}

// maxListed is the number of names in a message.
const maxListed = 20

// list is a list of names in order.
func list(of map[string]bool) string {
	names := make([]string, 0, len(of))
	for name := range of {
		names = append(names, name)
	}
	slices.Sort(names)
	more := ""
	if len(names) > maxListed {
		more = fmt.Sprintf(" and %d more", len(names)-maxListed)
		names = names[:maxListed]
	}
	return fmt.Sprint(names) + more
}

// conditions are the conditions of these types.
func (f findings) conditions(types []string, generation int64) (list []condition) {
	for _, t := range types {
		status := metav1.ConditionFalse
		if f[t] != "" {
			status = metav1.ConditionTrue
		}
		list = append(list, condition{slim.MakeString(t), slim.MakeString(string(status)), slim.MakeString(reasons[t]), printable.Line(f[t]), generation})
	}
	return list
}

// ofTypes are the conditions of these types, in their order in the status.
func ofTypes(all []condition, types []string) (list []condition) {
	for _, c := range all {
		if slices.Contains(types, c.Type.String()) {
			list = append(list, c)
		}
	}
	return list
}

// setConditions makes the conditions of these types those that are wanted, in the order of types. Others stay.
func setConditions(all *[]metav1.Condition, types []string, want []condition, now metav1.Time) {
	had := slices.Clone(*all)
	*all = slices.DeleteFunc(*all, func(c metav1.Condition) bool { return slices.Contains(types, c.Type) })
	for _, w := range want {
		is := metav1.Condition{
			Type: w.Type.String(), Status: metav1.ConditionStatus(w.Status.String()), Reason: w.Reason.String(), Message: w.Message,
			ObservedGeneration: w.ObservedGeneration, LastTransitionTime: now,
		}
		for _, c := range had {
			if c.Type == is.Type && c.Status == is.Status {
				is.LastTransitionTime = c.LastTransitionTime
			}
		}
		*all = append(*all, is)
	}
	slices.SortStableFunc(*all, func(a, b metav1.Condition) int { return strings.Compare(a.Type, b.Type) })
}
