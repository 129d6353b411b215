// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package identity

import (
	"cmp"
	"slices"

	"github.com/skep-operator/skep/resources/domain/identity"
	"github.com/skep-operator/skep/resources/stream/ciliumio"
	"github.com/skep-operator/skep/resources/stream/slim"
)

// observation is an identity in the cache or in a response.
type observation struct {
	number   identity.Number
	uid      slim.UID
	labels   slim.Labels // security-labels
	created  slim.Time
	revision slim.Revision
}

// object is a CiliumIdentity with a number of the cluster.
type object struct {
	observation
	// set is the set of its original labels, nil for none. edited_labels.go has the rules.
	set *set
	// createdHere says that this leader created it, so that its original labels are known.
	createdHere bool
}

// edited reports whether its labels on the server differ from the original ones.
func (o *object) edited() bool { return o.set != nil && o.set.labels != o.labels }

// upsertObject records an identity of the cache. It is ignored if a response was newer.
func (t *table) upsertObject(o *ciliumio.Identity) {
	number, ok := t.parseName(o.Name)
	if !ok {
		return
	}
	if o.ResourceVersion >= t.unconfirmed[number] { // not an earlier one of that name
		delete(t.unconfirmed, number)
	}
	now := observation{number, o.UID, o.SecurityLabels, o.CreationTimestamp, o.ResourceVersion}
	if o.CannotDecode("security-labels") {
		now.labels = t.lastLabels(number, o.UID)
	}
	t.recordObject(now, slim.Labels{})
}

// lastLabels are the last known labels of an identity, none if it is new. Its number is held in both cases.
func (t *table) lastLabels(number identity.Number, uid slim.UID) slim.Labels {
	if o := t.objects[number]; o != nil && o.uid == uid {
		return o.labels
	}
	return slim.Labels{}
}

// parseName returns the number of an identity of this cluster.
func (t *table) parseName(name string) (identity.Number, bool) {
	n, ok := identity.ParseNumber(name)
	return n, ok && t.numbers.bounds.Contains(n)
}

// recordObject records an identity. created are the labels that this leader created it with, none if it did not.
func (t *table) recordObject(now observation, created slim.Labels) {
	o := t.objects[now.number]
	if o != nil && o.revision > now.revision {
		return
	}
	original := created
	if original == (slim.Labels{}) {
		original = t.originalLabels(o, now)
	}
	s := t.ensureSet(original)
	if o != nil && o.set == s && o.uid == now.uid && o.created == now.created {
		t.updateObject(o, now)
		return
	}
	if o != nil {
		t.removeObject(o)
		s = t.ensureSet(original) // removing may have dropped it
	}
	o = &object{observation: now}
	t.objects[o.number] = o
	t.numbers.hold(o.number)
	t.attach(o, s)
}

// updateObject records a newer state of an identity of the same set.
func (t *table) updateObject(o *object, now observation) {
	was, s := o.observation, o.set
	o.observation = now
	if s == nil || was.labels == now.labels {
		return
	}
	if s.number == o.number {
		s.exists = !o.edited()
		t.recordChanged(s)
	}
	t.updateChoice(s)
	t.enqueueIfNeeded(s)
}

// attach adds an identity to a set.
func (t *table) attach(o *object, s *set) {
	o.set = s
	if other := t.owners[o.number]; other != nil && other != s { // its creation was faster
		t.unchoose(other)
		t.updateChoice(other)
		t.enqueue(other)
	}
	if s == nil {
		return
	}
	i, _ := slices.BinarySearchFunc(s.objects, o, older)
	s.objects = slices.Insert(s.objects, i, o)
	if len(s.objects) == 2 {
		t.duplicates++
	}
	if s.hasPorts() {
		t.havePorts++
	}
	t.objectAdded(s, o)
}

// detach removes an identity from its set, and returns the set.
func (t *table) detach(o *object) *set {
	s := o.set
	if s == nil {
		return nil
	}
	if s.hasPorts() {
		t.havePorts--
	}
	s.objects = slices.DeleteFunc(s.objects, func(other *object) bool { return other == o })
	if len(s.objects) == 1 {
		t.duplicates--
	}
	return s
}

func older(a, b *object) int {
	return cmp.Or(cmp.Compare(a.created, b.created), cmp.Compare(a.number, b.number))
}

// deleteObject records that an identity was deleted at this revision or before the next.
func (t *table) deleteObject(name string, revision slim.Revision) {
	number, ok := t.parseName(name)
	if o := t.objects[number]; ok && o != nil && o.revision <= revision {
		t.removeObject(o)
	}
}

func (t *table) removeObject(o *object) {
	delete(t.objects, o.number)
	delete(t.unconfirmed, o.number)
	t.numbers.release(o.number)
	t.numbers.quarantine(o.number, t.now)
	if s := t.detach(o); s != nil {
		t.objectRemoved(s, o)
	}
}
