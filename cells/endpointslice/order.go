// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package endpointslice

import (
	"maps"
	gslices "slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/skep-operator/skep/resources/api/v2alpha1"
	"github.com/skep-operator/skep/resources/stream/ciliumio"
	"github.com/skep-operator/skep/resources/stream/slim"
)

// content tells what a slice should say of an endpoint, false if nothing. last is
// the identity that a slice says it has.
type content func(key slim.Key, last int64) (v2alpha1.CoreCiliumEndpoint, bool)

// rash reports whether an order would drop an endpoint from a slice that may live
// for all that is known: it was not seen, or seen to go, in a view that may be
// older than the slice.
func (p *plan) rash(o order) bool {
	s := o.slice
	if p.sure {
		return false
	}
	return gslices.ContainsFunc(s.shown.endpoints, func(entry ciliumio.SliceEndpoint) bool {
		e, known := p.endpoints.Get(slim.Key{Namespace: s.shown.namespace, Name: entry.Name})
		elsewhere := known && e.home != s && e.home.shows(entry.Name)
		return !elsewhere && !(has(o.will, entry.Name) && s.shown.namespace == s.group.namespace)
	})
}

// verb is what is to be done with a slice.
type verb uint8

const (
	nothing verb = iota
	create
	update
	remove
)

// order is what is to be written of a slice, and upon what that was decided.
type order struct {
	verb     verb
	slice    *slice
	upon     shown
	object   *v2alpha1.CiliumEndpointSlice // nil to delete it
	will     []ciliumio.SliceEndpoint      // what the server shows afterwards
	inserted int                           // endpoints that are new in the slice, or say something else
	removed  int
}

// order decides what is to be written of a slice now.
func (p *plan) order(name string, says content) order {
	s := p.slices[name]
	if s == nil {
		return order{}
	}
	o := order{slice: s, upon: s.shown}
	object := &v2alpha1.CiliumEndpointSlice{
		TypeMeta:   metav1.TypeMeta{APIVersion: v2alpha1.SchemeGroupVersion.String(), Kind: "CiliumEndpointSlice"},
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: s.shown.uid.API(), ResourceVersion: s.shown.revision.String()},
		Namespace:  s.group.namespace, Endpoints: []v2alpha1.CoreCiliumEndpoint{},
	}
	for _, endpoint := range p.kept(s) {
		if e, ok := says(s.key(endpoint), p.lastIdentity(s.key(endpoint))); ok {
			object.Endpoints = append(object.Endpoints, e)
			o.will = append(o.will, ciliumio.SliceEndpointOf(&e))
		}
	}
	o.inserted, o.removed = changes(s.shown.endpoints, o.will)
	switch {
	case len(o.will) == 0 && (!s.shown.exists() || p.awaited(s)), p.rash(o):
		return order{slice: s}
	case len(o.will) == 0:
		o.verb = remove
		return o
	case !s.shown.exists():
		o.verb, object.UID, object.ResourceVersion = create, "", ""
	case o.inserted+o.removed > 0 || len(o.will) != len(s.shown.endpoints) || s.shown.namespace != s.group.namespace:
		o.verb = update
	default:
		return order{slice: s}
	}
	o.object = object
	return o
}

// kept are the names of the endpoints that a slice should have: those that belong
// in it, and those that belong elsewhere and are not there yet.
// They are sorted.
func (p *plan) kept(s *slice) []string {
	names := gslices.AppendSeq(make([]string, 0, s.level()), maps.Keys(s.members))
	for name, keep := range s.strays {
		if keep && !p.home(s.key(name)).shows(name) {
			names = append(names, name)
		}
	}
	gslices.Sort(names)
	return names
}

// awaited reports whether an endpoint is to be shown elsewhere before the slice
// is deleted.
func (p *plan) awaited(s *slice) bool {
	for len(s.awaits) > 0 {
		key := s.awaits[0]
		if e, known := p.endpoints.Get(key); known && !e.home.shows(key.Name) {
			return true
		}
		s.awaits = s.awaits[1:]
		p.unlink(s, key)
	}
	return false
}

// changes counts what differs between what a slice says and what it will.
func changes(before, after []ciliumio.SliceEndpoint) (inserted, removed int) {
	sums := make(map[string]uint64, len(before))
	for _, e := range before {
		sums[e.Name] = e.Sum
	}
	removed = len(sums)
	for _, e := range after {
		sum, was := sums[e.Name]
		if was {
			removed--
		}
		if !was || sum != e.Sum {
			inserted++
		}
	}
	return inserted, removed
}

// doubt is what a slice would be if a write took effect that has no answer yet. One
// that is repeated, as while the server is away, stays one.
type doubt struct {
	will  []ciliumio.SliceEndpoint
	times int
}

func (s *slice) doubt(will []ciliumio.SliceEndpoint) {
	if last := len(s.doubts) - 1; last >= 0 && gslices.Equal(s.doubts[last].will, will) {
		s.doubts[last].times++
		return
	}
	s.doubts = append(s.doubts, doubt{will, 1})
}

// trust takes the last doubt back.
func (s *slice) trust() {
	last := len(s.doubts) - 1
	if s.doubts[last].times--; s.doubts[last].times == 0 {
		s.doubts = s.doubts[:last]
	}
}

// begins takes note that an order is being carried out, or that there is none:
// what happens from now on is for the next time.
func (p *plan) begins(o order) {
	s := o.slice
	s.queued = false
	if o.verb != nothing {
		s.doubt(o.will)
		s.writing = true
	}
	p.findStrays(s)
	p.shelves.put(s)
	p.forget(s)
}

// failed takes note that an order was not carried out, for sure if it was refused,
// and that it will be tried again.
func (p *plan) failed(o order, refused bool) {
	s := o.slice
	if refused && s.shown.revision == o.upon.revision && len(s.doubts) > 0 {
		s.trust()
		p.findStrays(s)
	}
	s.writing = false
	s.queued = true
	p.shelves.put(s)
}

// forget drops a slice that is not there and has no endpoints.
func (p *plan) forget(s *slice) {
	if s.queued || s.writing || s.shown.exists() || len(s.members) > 0 || p.slices[s.name] != s {
		return
	}
	for _, key := range s.awaits {
		p.unlink(s, key)
	}
	for name := range maps.Clone(s.strays) {
		p.unstray(s, s.key(name))
	}
	p.shelves.take(s)
	delete(p.slices, s.name)
}

// wrote takes note of what the server has after an order was carried out.
func (p *plan) wrote(o order, uid slim.UID, revision slim.Revision) {
	s := o.slice
	s.writing = false
	if o.verb == remove {
		if s.shown.uid == o.upon.uid {
			p.setShown(s, shown{})
		}
		if len(s.members) > 0 {
			p.touch(s)
		}
		p.forget(s)
		return
	}
	if s.shown.exists() && revision <= s.shown.revision {
		return
	}
	p.setShown(s, shown{uid, revision, o.object.Namespace, o.will})
}

// size is about how many bytes an endpoint has in a slice.
func size(e *v2alpha1.CoreCiliumEndpoint) int {
	n := 120 + len(e.Name)
	if e.Networking != nil {
		for _, pair := range e.Networking.Addressing {
			n += 24 + len(pair.IPv4) + len(pair.IPv6)
		}
	}
	for _, port := range e.NamedPorts {
		n += 48 + len(port.Name) + len(port.Protocol)
	}
	return n
}
