// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package endpointslice

import (
	"cmp"
	"maps"
	gslices "slices"

	"github.com/skep-operator/skep/resources/stream/ciliumio"
	"github.com/skep-operator/skep/resources/stream/slim"
)

// begin gives all endpoints their places, once all slices and endpoints have been
// seen. Each stays in the slice that has it, so that nothing is written that is
// right. All slices are to be looked at.
func (p *plan) begin(says content) {
	p.begun = true
	p.recall(says)
	for _, name := range p.fullestFirst() {
		p.load(name, p.found[name])
	}
	if p.byIdentity { // slices of several identities have what is left
		for _, name := range p.fullestFirst() {
			if s := p.slices[name]; s.closed {
				p.adopt(s, p.found[name])
			}
		}
	}
	for _, name := range p.fullestFirst() {
		p.setShown(p.slices[name], p.found[name])
	}
	for _, key := range p.homeless() {
		e, _ := p.endpoints.Get(key)
		p.settle(key, e)
	}
	p.awaitNamesakes()
	p.found = nil
	for _, name := range gslices.Sorted(maps.Keys(p.slices)) {
		p.touch(p.slices[name])
	}
}

// recall takes note of endpoints whose identity only a slice tells for now.
func (p *plan) recall(says content) {
	for _, now := range p.found {
		for _, entry := range now.endpoints {
			key := slim.Key{Namespace: now.namespace, Name: entry.Name}
			if _, known := p.endpoints.Get(key); known {
				continue
			}
			if e, ok := says(key, entry.IdentityID); ok {
				p.endpoints.Set(key, endpoint{identity: e.IdentityID, bytes: size(&e)})
			}
		}
	}
}

// fullestFirst are the names of the slices that were found: of two that have an
// endpoint, the fuller one keeps it.
func (p *plan) fullestFirst() []string {
	return gslices.SortedFunc(maps.Keys(p.found), func(a, b string) int {
		return cmp.Or(cmp.Compare(len(p.found[b].endpoints), len(p.found[a].endpoints)), cmp.Compare(a, b))
	})
}

// load makes a slice of one that was found. Where slices are made by identity, one
// with several identities is left as it is, and takes no more.
func (p *plan) load(name string, now shown) {
	g := group{namespace: now.namespace}
	if !p.byIdentity {
		p.adopt(p.add(name, g), now)
		return
	}
	identity, uniform := onlyIdentity(now.endpoints)
	g.identity = identity
	s := p.add(name, g)
	if s.closed = !uniform; uniform {
		p.adopt(s, now)
	}
}

func onlyIdentity(entries []ciliumio.SliceEndpoint) (identity int64, uniform bool) {
	for i, e := range entries {
		if i > 0 && e.IdentityID != identity {
			return 0, false
		}
		identity = e.IdentityID
	}
	return identity, len(entries) > 0
}

// adopt lets a slice keep the endpoints that it has, as many as it may.
func (p *plan) adopt(s *slice, now shown) {
	for _, entry := range now.endpoints {
		key := s.key(entry.Name)
		e, known := p.endpoints.Get(key)
		switch {
		case !known:
			s.reserved++
		case e.home != nil, p.full(s):
		case len(s.members) > 0 && s.bytes+e.bytes > tooManyBytes:
		case s.closed || p.groupOf(key.Namespace, e.identity) == s.group:
			p.join(s, key, e)
		}
	}
	p.shelves.put(s)
}

// homeless are the endpoints that no slice has, in order.
func (p *plan) homeless() (keys []slim.Key) {
	for key, e := range p.endpoints.All() {
		if e.home == nil {
			keys = append(keys, key)
		}
	}
	gslices.SortFunc(keys, compareKeys)
	return keys
}

func compareKeys(a, b slim.Key) int {
	return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
}

// awaitNamesakes keeps slices of which nothing is right from being deleted before
// endpoints of other namespaces that have the names they list are in slices: it
// may be only the namespace that is wrong.
func (p *plan) awaitNamesakes() {
	wrong := map[string][]*slice{}
	for _, name := range p.fullestFirst() {
		s, now := p.slices[name], p.found[name]
		if len(s.members)+len(s.strays) > 0 {
			continue
		}
		s.closed = s.closed || len(now.endpoints) > 0
		p.shelves.put(s)
		for _, entry := range now.endpoints {
			wrong[entry.Name] = append(wrong[entry.Name], s)
		}
	}
	if len(wrong) == 0 {
		return
	}
	for key, e := range p.endpoints.All() {
		for _, s := range wrong[key.Name] {
			if !e.home.shows(key.Name) {
				s.awaits = append(s.awaits, key)
				p.strays[key] = append(p.strays[key], s)
			}
		}
	}
}

// makeSure takes note that endpoints are known at least as well as leaders before
// this one knew them. Slices that waited for that are looked at.
func (p *plan) makeSure() {
	names := gslices.Sorted(maps.Keys(p.slices))
	for _, name := range names {
		p.slices[name].reserved = 0
		p.findStrays(p.slices[name])
	}
	p.sure = true
	for _, name := range names {
		p.touch(p.slices[name])
	}
}
