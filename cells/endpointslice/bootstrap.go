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

// bootstrap assigns all endpoints to slices once both caches are synced. Each stays in the slice that has it, so that
// nothing is rewritten without need. All slices are enqueued.
func (p *planner) bootstrap(content contentFunc) {
	p.synced = true
	p.restoreIdentities(content)
	for _, name := range p.fullestFirst() {
		p.loadSlice(name, p.initial[name])
	}
	if p.byIdentity { // slices of several identities keep the rest
		for _, name := range p.fullestFirst() {
			if s := p.slices[name]; s.closed {
				p.adopt(s, p.initial[name])
			}
		}
	}
	for _, name := range p.fullestFirst() {
		p.setStored(p.slices[name], p.initial[name])
	}
	for _, key := range p.unassigned() {
		e, _ := p.endpoints.Get(key)
		p.assign(key, e)
	}
	p.deferDeleteForSameName()
	p.initial = nil
	for _, name := range gslices.Sorted(maps.Keys(p.slices)) {
		p.enqueue(p.slices[name])
	}
}

// restoreIdentities adds endpoints whose identity is known only from a slice, and those that cannot be decoded.
func (p *planner) restoreIdentities(content contentFunc) {
	for _, now := range p.initial {
		for _, entry := range now.endpoints {
			key := slim.Key{Namespace: now.namespace, Name: entry.Name}
			if _, known := p.endpoints.Get(key); known {
				continue
			}
			switch e, state := p.desiredAfter(key, entry.IdentityID, content); state {
			case undecoded:
				p.endpoints.Set(key, endpoint{identity: entry.IdentityID, bytes: assumedBytes})
				p.freeze(key)
			case decoded:
				p.endpoints.Set(key, endpoint{identity: e.IdentityID, bytes: size(&e)})
			}
		}
	}
}

// fullestFirst are the names of the initial slices. Of two with the same endpoint, the fuller one keeps it.
func (p *planner) fullestFirst() []string {
	return gslices.SortedFunc(maps.Keys(p.initial), func(a, b string) int {
		return cmp.Or(cmp.Compare(len(p.initial[b].endpoints), len(p.initial[a].endpoints)), cmp.Compare(a, b))
	})
}

// loadSlice adds an initial slice. In the mode identity, one with several identities is closed.
func (p *planner) loadSlice(name string, now stored) {
	g := group{namespace: now.namespace}
	if !p.byIdentity {
		p.adopt(p.addSlice(name, g), now)
		return
	}
	identity, uniform := onlyIdentity(now.endpoints)
	g.identity = identity
	s := p.addSlice(name, g)
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

// adopt makes the endpoints that a slice has its members, up to its limits.
func (p *planner) adopt(s *slice, now stored) {
	for _, entry := range now.endpoints {
		key := s.key(entry.Name)
		e, known := p.endpoints.Get(key)
		switch {
		case !known:
			s.reserved++
		case e.slice != nil, p.isFull(s):
		case len(s.members) > 0 && s.bytes+e.bytes > maxBytes:
		case s.closed || p.groupOf(key.Namespace, e.identity) == s.group:
			p.addMember(s, key, e)
		}
	}
	p.bins.update(s)
}

// unassigned are the endpoints without a slice, in order.
func (p *planner) unassigned() (keys []slim.Key) {
	for key, e := range p.endpoints.All() {
		if e.slice == nil {
			keys = append(keys, key)
		}
	}
	gslices.SortFunc(keys, compareKeys)
	return keys
}

func compareKeys(a, b slim.Key) int {
	return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
}

// deferDeleteForSameName defers the deletion of slices without a right entry until endpoints of other namespaces with
// the names of their entries are in slices: only the namespace of the slice may be wrong.
func (p *planner) deferDeleteForSameName() {
	wrong := map[string][]*slice{}
	for _, name := range p.fullestFirst() {
		s, now := p.slices[name], p.initial[name]
		if len(s.members)+len(s.misplaced) > 0 {
			continue
		}
		s.closed = s.closed || len(now.endpoints) > 0
		p.bins.update(s)
		for _, entry := range now.endpoints {
			wrong[entry.Name] = append(wrong[entry.Name], s)
		}
	}
	if len(wrong) == 0 {
		return
	}
	for key, e := range p.endpoints.All() {
		for _, s := range wrong[key.Name] {
			if !e.slice.hasStored(key.Name) {
				s.deleteAfter = append(s.deleteAfter, key)
				p.misplaced[key] = append(p.misplaced[key], s)
			}
		}
	}
}

// confirm records that the endpoints are at least as new as those of previous leaders, and enqueues all slices.
func (p *planner) confirm() {
	names := gslices.Sorted(maps.Keys(p.slices))
	for _, name := range names {
		p.slices[name].reserved = 0
		p.findMisplaced(p.slices[name])
	}
	p.confirmed = true
	for _, name := range names {
		p.enqueue(p.slices[name])
	}
}
