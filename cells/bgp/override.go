// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package bgp

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// overrideError is a CiliumBGPNodeConfigOverride that cannot be applied.
type overrideError struct{ name, problem string }

func (e *overrideError) Error() string {
	return fmt.Sprintf("CiliumBGPNodeConfigOverride %s: %s", e.name, e.problem)
}

// withoutEffect says what of the override with a name has no effect, "" for nothing: one is easily written for a name that no node, router or
// peer has.
func (p *planner) withoutEffect(name string) string {
	o, owner := p.overrides[name], p.servesNode(name)
	_, exists := p.nodes[name]
	switch {
	case o == nil || o.CannotDecode("spec"):
		return ""
	case !exists:
		return "it has no effect: no CiliumNode has its name"
	case owner == nil:
		return "it has no effect: no CiliumBGPClusterConfig selects its node"
	case owner.selector == nil:
		return "" // that one has the word
	}
	var unknown []string
	for i := range o.Spec.BGPInstances {
		unknown = append(unknown, unknownIn(owner.Spec.BGPInstances, &o.Spec.BGPInstances[i])...)
	}
	if len(unknown) == 0 {
		return ""
	}
	return fmt.Sprintf("%d parts have no effect, since CiliumBGPClusterConfig %s does not have them: %s",
		len(unknown), owner.Name, strings.Join(unknown[:min(maxNamedParts, len(unknown))], ", "))
}

// maxNamedParts is how many parts without an effect are named.
const maxNamedParts = 5

// servesNode is the CiliumBGPClusterConfig whose routers a node has or gets, nil for none.
func (p *planner) servesNode(name string) *config {
	if current := p.nodeConfigs[name]; current != nil {
		return p.ownerOf(current)
	}
	return p.firstFor(name)
}

// unknownIn are the parts of a router in an override that none of the routers has.
func unknownIn(routers []instance, with *instance) (names []string) {
	i := slices.IndexFunc(routers, func(r instance) bool { return r.Name == with.Name })
	if i < 0 {
		return []string{fmt.Sprintf("the router %q", with.Name.String())}
	}
	for _, w := range with.Peers {
		if !slices.ContainsFunc(routers[i].Peers, func(has peer) bool { return has.Name == w.Name }) {
			names = append(names, fmt.Sprintf("the peer %q of %q", w.Name.String(), with.Name.String()))
		}
	}
	return names
}

// reportOverride makes an Event about an override that cannot be applied, which the queue logs and retries, or that has no effect, if that is
// new. The caller has the lock.
func (c *controller) reportOverride(name string, err error) {
	problem, text := new(overrideError), ""
	isRefused := errors.As(err, &problem)
	if text = c.planner.withoutEffect(name); isRefused {
		text = strings.TrimSpace(problem.problem)
	}
	key := overrides.Name() + " " + name
	before := c.problems[key]
	if delete(c.problems, key); text != "" {
		c.problems[key] = text
	}
	if text == "" || text == before {
		return
	}
	of := about(overrides.Resource().GroupVersion().String(), overrides.Name(), &c.planner.overrides[name].Meta)
	if isRefused {
		c.Events.Warning(of, "OverrideRefused", text)
		return
	}
	c.Events.Warning(of, "OverrideWithoutEffect", text)
}
