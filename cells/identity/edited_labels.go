// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package identity

import (
	"slices"
	"strings"

	"github.com/skep-operator/skep/resources/domain/identity"
	"github.com/skep-operator/skep/resources/domain/labels"
	"github.com/skep-operator/skep/resources/stream/slim"
)

// The labels of an identity are immutable: agents in the whole cluster map its number to its original labels. An object
// with others was edited, by hand or by admission of the API server. Its labels are restored if the original ones are
// known:
//
//   - This leader has created the identity.
//   - The cache had the identity before and after the edit: the labels before are the original ones if pods that use the
//     number have them, and no such pod has those after.
//   - The cache has the identity only after the edit: metadata.labels are written together with security-labels and are
//     seldom edited with them. The labels of another set with pods are the original ones if metadata.labels are theirs,
//     no label that is not copied there differs, and all endpoints with the number belong to these pods.
//
// Otherwise the labels of the object count as the original ones, with one exception: an identity with contradicting
// metadata.labels is not recreated when it is deleted.

// originalLabels are the original labels of an identity that this leader did not create, as now observed. o is the
// known object of that number.
func (t *table) originalLabels(o *object, now observation) slim.Labels {
	switch {
	case o == nil || o.uid != now.uid || o.set == nil:
		return now.labels
	case now.labels == o.labels || o.createdHere:
		return o.set.labels
	case o.match == contradicts:
		return now.labels
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

// onlyPodsUse reports whether all endpoints with a number belong to pods of a set, and whether there are any.
func (t *table) onlyPodsUse(s *set, n identity.Number) (only, inUse bool) {
	for key := range t.endpointsWith(n) {
		if inUse = true; !t.isOf(key, s) {
			return false, true
		}
	}
	return true, inUse
}

// isOf reports whether a pod has the labels of a set.
func (t *table) isOf(pod slim.Key, s *set) bool {
	p, _ := t.pods.Get(pod)
	return p != nil && p.template != nil && p.template.set == s
}

// labelMatch compares the metadata.labels of an identity with its security-labels.
type labelMatch uint8

const (
	equalLabels  labelMatch = iota // no metadata.labels, or the same
	moreMetadata                   // all labels, and others
	contradicts                    // one is missing, or has another value
)

// compareLabels compares security-labels with metadata.labels.
func compareLabels(of, metadata slim.Labels) labelMatch {
	if metadata == (slim.Labels{}) {
		return equalLabels
	}
	same := 0
	for name, value := range of.All() {
		key, ok := strings.CutPrefix(name, "k8s:")
		if has, exists := metadata.Lookup(key); ok && exists && has == value {
			same++
		} else if _, ok := labels.MetadataKey(name, value); ok {
			return contradicts
		}
	}
	if same < metadata.Len() {
		return moreMetadata
	}
	return equalLabels
}

// metadata are the metadata.labels of an identity with the labels of the set.
func (s *set) metadata() slim.Labels {
	if s.meta == (slim.Labels{}) {
		s.meta = slim.MakeLabels(labels.Set(s.labels.Map()).Metadata())
	}
	return s.meta
}

// outsideMetadata are the labels that are not copied to metadata.labels.
func outsideMetadata(of slim.Labels) slim.Labels {
	rest := map[string]string{}
	for name, value := range of.All() {
		if _, ok := labels.MetadataKey(name, value); !ok {
			rest[name] = value
		}
	}
	return slim.MakeLabels(rest)
}

// recordMismatch indexes an identity whose original labels are unknown and whose metadata.labels differ from its
// security-labels.
func (t *table) recordMismatch(o *object) {
	if o.createdHere || o.edited() {
		return
	}
	if o.match = compareLabels(o.labels, o.metadata); o.match != equalLabels {
		i, _ := slices.BinarySearchFunc(t.mismatched[o.metadata], o, older)
		t.mismatched[o.metadata] = slices.Insert(t.mismatched[o.metadata], i, o)
	}
}

// clearMismatch removes an identity from that index, before anything of it changes.
func (t *table) clearMismatch(o *object) {
	if o.match == equalLabels {
		return
	}
	o.match = equalLabels
	all := slices.DeleteFunc(t.mismatched[o.metadata], func(other *object) bool { return other == o })
	if t.mismatched[o.metadata] = all; len(all) == 0 {
		delete(t.mismatched, o.metadata)
	}
}

// isTrusted reports whether an identity that is deleted is recreated with its labels. If its metadata.labels have more
// labels, it is trusted if only pods with its labels use it.
func (t *table) isTrusted(o *object) bool {
	switch {
	case o.match == equalLabels:
		return true
	case o.match == contradicts || o.set == nil || o.set.pods == 0:
		return false
	}
	only, _ := t.onlyPodsUse(o.set, o.number)
	return only
}

// reclaim reassigns identities with mismatched labels whose original labels are those of a set.
func (t *table) reclaim(s *set) {
	if len(t.mismatched) == 0 || s.pods == 0 {
		return
	}
	for _, o := range slices.Clone(t.mismatched[s.metadata()]) {
		if outsideMetadata(o.labels) != outsideMetadata(s.labels) {
			continue
		}
		only, inUse := t.onlyPodsUse(s, o.number)
		lacking := len(s.objects) == 0 && (s.number == 0 || s.fresh) && !s.inFlight
		if only && (inUse || lacking) {
			t.reassign(o, s)
		}
	}
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

// reclaimAll reclaims identities for all sets: there may be new pods and endpoints as evidence.
func (t *table) reclaimAll() {
	if len(t.mismatched) == 0 {
		return
	}
	for _, s := range t.sets {
		t.reclaim(s)
	}
}

// contradictions counts the identities in use whose metadata.labels contradict their security-labels, and returns the
// first.
func (t *table) contradictions() (n int, first identity.Number) {
	for _, all := range t.mismatched {
		for _, o := range all {
			if o.match != contradicts || t.owners[o.number] == nil && !t.inUseByEndpoint(o.number) {
				continue
			}
			if n++; n == 1 || o.number < first {
				first = o.number
			}
		}
	}
	return n, first
}
