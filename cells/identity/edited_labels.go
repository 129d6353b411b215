// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package identity

import (
	"github.com/skep-operator/skep/resources/domain/identity"
	"github.com/skep-operator/skep/resources/stream/slim"
)

// The labels of an identity are immutable: agents in the whole cluster map its number to its original labels. An object
// with others was edited, by hand or by admission of the API server. Its labels are restored if the original ones are
// known:
//
//   - This leader has created the identity.
//   - The cache had the identity before and after the edit: the labels before are the original ones if pods that use the
//     number have them, and no such pod has those after.
//
// Otherwise the labels of the object count as the original ones. Its metadata.labels say nothing about them: which ones are
// there depends on the release of who wrote them.

// originalLabels are the original labels of an identity that this leader did not create, as now observed. o is the
// known object of that number.
func (t *table) originalLabels(o *object, now observation) slim.Labels {
	switch {
	case o == nil || o.uid != now.uid || o.set == nil:
		return now.labels
	case now.labels == o.labels || o.createdHere:
		return o.set.labels
	case t.podsUse(o.set, o.number) && !t.podsUse(t.sets[now.labels], o.number):
		return o.set.labels
	}
	return now.labels
}

// podsUse reports whether pods of a set use a number: endpoints of such pods have it, or no endpoint has it and the set
// has chosen it.
func (t *table) podsUse(s *set, n identity.Number) bool {
	if !t.synced || s == nil || s.pods == 0 {
		return false
	}
	inUse := false
	for key := range t.endpointsWith(n) {
		if inUse = true; t.isOf(key, s) {
			return true
		}
	}
	return !inUse && s.number == n
}

// isOf reports whether the labels of a pod may be those of a set.
func (t *table) isOf(pod slim.Key, s *set) bool {
	p, _ := t.pods.Get(pod)
	for ; p != nil && p.template != nil; p = p.next {
		if p.template.set == s {
			return true
		}
	}
	return false
}

// reassign changes the original labels of an identity to those of another set.
func (t *table) reassign(o *object, s *set) {
	was := t.detach(o)
	t.attach(o, s)
	if was != nil {
		t.updateChoice(was)
		t.enqueueIfNeeded(was)
	}
}
