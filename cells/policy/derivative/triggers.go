// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package derivative

import (
	"slices"
	"strings"

	"github.com/skep-operator/skep/resources/networkpolicy"
	"github.com/skep-operator/skep/resources/stream"
	"github.com/skep-operator/skep/resources/stream/slim"
)

// fingerprint is what a policy is reconciled for if it changes: not its status, and not the resourceVersion.
type fingerprint struct {
	uid      slim.UID
	digest   [2]uint64
	orphaned bool // the status has entries that are to be removed
}

func (c *controller) policyChanged(ch stream.Change[networkpolicy.Policy]) []slim.Key {
	return c.changed(ch.Key, ch.Object, ch.Kind == stream.Delete)
}

func (c *controller) clusterwidePolicyChanged(ch stream.Change[networkpolicy.ClusterwidePolicy]) []slim.Key {
	return c.changed(ch.Key, (*networkpolicy.Policy)(ch.Object), ch.Kind == stream.Delete)
}

// changed are the policies with groups that a change concerns, and the groups whose users are others than before.
func (c *controller) changed(key slim.Key, p *networkpolicy.Policy, deleted bool) []slim.Key {
	keys := c.changedPolicies(key, p, deleted)
	var groups []networkpolicy.Group
	unknown := false
	if !deleted {
		groups = p.Groups()
		_, unknown = p.HasGroups()
	}
	if len(groups) > networkpolicy.MaxGroups { // none of them is looked up
		groups = nil
	}
	for _, id := range c.users.set(key, groups, unknown) {
		keys = append(keys, groupKey(id))
	}
	return keys
}

// changedPolicies are the policies with groups that a change concerns: the policy itself, or the one that it is derived from. Of most
// policies nothing is kept.
func (c *controller) changedPolicies(key slim.Key, p *networkpolicy.Policy, deleted bool) []slim.Key {
	was, known := c.seen[key]
	parent, isDerived := parentOf(key, p)
	groups, _ := p.HasGroups()
	orphaned := hasOrphans(p, groups)
	now := fingerprint{p.UID, p.Digest(), orphaned}
	relevant := !deleted && (groups || orphaned || isDerived)
	if relevant {
		c.seen[key] = now
	} else {
		delete(c.seen, key)
	}
	if !relevant && !known && !isDerived || relevant && known && was == now {
		return nil
	}
	if isDerived {
		return []slim.Key{parent}
	}
	return []slim.Key{key}
}

// parentOf is the policy that one is derived from.
func parentOf(key slim.Key, p *networkpolicy.Policy) (parent slim.Key, isDerived bool) {
	uid := p.Labels.Get(networkpolicy.ParentUIDLabel)
	name, named := strings.CutSuffix(key.Name, nameOf("", uid))
	return slim.Key{Namespace: key.Namespace, Name: name}, uid != "" && named && name != ""
}

// hasOrphans reports whether the status of a policy has entries other than that of its derived policy.
func hasOrphans(p *networkpolicy.Policy, groups bool) bool {
	return slices.ContainsFunc(p.Derived(), func(name string) bool {
		return !groups || name != nameOf(p.Name, p.UID.String())
	})
}
