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

// seeObject takes note of an identity as a view shows it. Views are late: what is
// older than what is known already does not count.
func (t *table) seeObject(o *ciliumio.Identity) {
	number, ok := t.number(o.Name)
	if !ok {
		return
	}
	if o.ResourceVersion >= t.unseen[number] { // no earlier one of that name
		delete(t.unseen, number)
	}
	t.putObject(number, o.SecurityLabels, o.CreationTimestamp, o.ResourceVersion)
}

// number is the number that the name of an identity of this cluster stands for.
func (t *table) number(name string) (identity.Number, bool) {
	n, ok := identity.ParseNumber(name)
	return n, ok && t.numbers.in.Contains(n)
}

func (t *table) putObject(number identity.Number, of slim.Labels, created slim.Time, revision slim.Revision) {
	o := t.objects[number]
	if o != nil && o.revision > revision {
		return
	}
	s := t.set(of)
	if o != nil && (o.of != s || o.created != created) {
		t.removeObject(o)
		s, o = t.set(of), nil // removing may have dropped it
	}
	if o != nil {
		o.revision = revision
		return
	}
	o = &object{number, s, created, revision}
	t.objects[number] = o
	t.numbers.hold(number)
	if other := t.owners[number]; other != nil && other != s { // it was faster
		t.unchoose(other)
		t.settle(other)
		t.touch(other)
	}
	if s == nil {
		return
	}
	i, _ := slices.BinarySearchFunc(s.objects, o, older)
	s.objects = slices.Insert(s.objects, i, o)
	if len(s.objects) == 2 {
		t.duplicates++
	}
	t.arrived(s, o)
}

func older(a, b *object) int {
	return cmp.Or(cmp.Compare(a.created, b.created), cmp.Compare(a.number, b.number))
}

// forgetObject takes note that an identity is gone that was last seen so.
func (t *table) forgetObject(name string, revision slim.Revision) {
	number, ok := t.number(name)
	if o := t.objects[number]; ok && o != nil && o.revision <= revision {
		t.removeObject(o)
	}
}

func (t *table) removeObject(o *object) {
	delete(t.objects, o.number)
	delete(t.unseen, o.number)
	t.numbers.release(o.number)
	t.numbers.retire(o.number, t.now)
	s := o.of
	if s == nil {
		return
	}
	s.objects = slices.DeleteFunc(s.objects, func(other *object) bool { return other == o })
	if len(s.objects) == 1 {
		t.duplicates--
	}
	t.left(s, o)
}
