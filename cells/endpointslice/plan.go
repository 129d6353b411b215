// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package endpointslice

import (
	"maps"
	gslices "slices"

	"github.com/skep-operator/skep/resources/stream/ciliumio"
	"github.com/skep-operator/skep/resources/stream/slim"
)

// planner holds all endpoints, the slice that each belongs in, and the slices on the server. It computes writes so that
// no endpoint is missing from all slices at any time: one that moves is added to its new slice first, and the old one
// keeps it until the server has that. It has no clock and no I/O, and is not safe for concurrent use.
type planner struct {
	capacity    int
	byIdentity  bool
	newName     func() string
	undecodable func(slim.Key) bool // reports whether the desired entry of an endpoint cannot be decoded

	synced    bool
	confirmed bool              // endpoints are at least as new as those of previous leaders
	initial   map[string]stored // slices, until bootstrap
	slices    map[string]*slice
	bins      *bins
	endpoints slim.KeyMap[endpoint]
	misplaced map[slim.Key][]*slice // slices that have an endpoint that belongs in another, and those in whose deleteAfter it is
	frozen    map[slim.Key]struct{} // endpoints that cannot be decoded
	dirty     []*slice              // slices to enqueue, until drain
}

// endpoint is an endpoint that should be in a slice.
type endpoint struct {
	slice    *slice // nil before bootstrap
	identity int64
	bytes    int
}

// slice is a slice that exists or will be created.
type slice struct {
	name    string
	group   group
	members map[string]struct{} // names of the endpoints that belong in it
	bytes   int                 // of them, approximately
	closed  bool                // takes no more endpoints
	// undecodable says that its state on the server cannot be decoded.
	undecodable bool
	queued      bool // to be written
	writing     bool // being written

	stored  stored
	unacked []unackedWrite // writes of it without a response
	// misplaced are the names of endpoints that it has, or may have, and that belong in another. True ones are kept until
	// the other slice has them. The others were written by another client, or are of an earlier endpoint of that name.
	misplaced   map[string]bool
	deleteAfter []slim.Key // endpoints that have to be in another slice before it is deleted
	// reserved is how many places are not free until it is confirmed that their endpoints are deleted.
	reserved int

	bin        bin
	binned     bool
	prev, next *slice
}

// stored is a slice on the server.
type stored struct {
	uid       slim.UID // zero if it does not exist
	revision  slim.Revision
	namespace string
	endpoints []ciliumio.SliceEndpoint
	// terminating says that it waits for its finalizers.
	terminating bool
}

func (s stored) exists() bool { return !s.uid.IsZero() }

// shareWith shares the memory of equal endpoints with the cache.
func (s *stored) shareWith(cached stored) {
	if gslices.Equal(s.endpoints, cached.endpoints) {
		s.endpoints = cached.endpoints
	}
}

func storedOf(obj *ciliumio.EndpointSlice) stored {
	return stored{uid: obj.UID, revision: obj.ResourceVersion, namespace: obj.Of.String(), endpoints: obj.Endpoints, terminating: !obj.DeletionTimestamp.IsZero()}
}

// Limits of the size of a slice, in bytes of JSON. The server accepts objects of 1.5 MB. A slice of closeBytes gets no
// more endpoints. From one that grows beyond maxBytes, endpoints are moved away when they change.
const (
	closeBytes = 1 << 20
	maxBytes   = closeBytes + closeBytes/4
)

func newPlanner(capacity int, byIdentity bool, newName func() string) *planner {
	return &planner{
		capacity: capacity, byIdentity: byIdentity, newName: newName,
		initial: map[string]stored{}, slices: map[string]*slice{}, bins: newBins(capacity),
		misplaced: map[slim.Key][]*slice{}, frozen: map[slim.Key]struct{}{},
		undecodable: func(slim.Key) bool { return false },
	}
}

// groupOf is the group of an endpoint.
func (p *planner) groupOf(namespace string, identity int64) group {
	if !p.byIdentity {
		identity = 0
	}
	return group{namespace, identity}
}

func (s *slice) key(name string) slim.Key {
	return slim.Key{Namespace: s.group.namespace, Name: name}
}

// fill is the number of members, misplaced endpoints and reserved places.
func (s *slice) fill() int { return len(s.members) + len(s.misplaced) + s.reserved }

// currentBin is the bin of the slice, if it has room.
func (s *slice) currentBin(capacity int) (at bin, has bool) {
	at = bin{s.group, s.queued, s.fill()}
	return at, !s.closed && !s.stored.terminating && at.fill < capacity && s.bytes < closeBytes
}

// isFull reports whether no more endpoints can be added, so that a write need not wait for more.
func (p *planner) isFull(s *slice) bool { return len(s.members) >= p.capacity }

// hasStored reports whether the server has an endpoint in the slice, whether or not unacknowledged writes take effect.
func (s *slice) hasStored(name string) bool {
	return s.stored.namespace == s.group.namespace && containsName(s.stored.endpoints, name) &&
		!gslices.ContainsFunc(s.unacked, func(d unackedWrite) bool { return !containsName(d.after, name) })
}

// mayHaveStored reports whether the server has an endpoint in the slice, or gets it by an unacknowledged write.
func (s *slice) mayHaveStored(name string) bool {
	return s.stored.namespace == s.group.namespace && containsName(s.stored.endpoints, name) ||
		gslices.ContainsFunc(s.unacked, func(d unackedWrite) bool { return containsName(d.after, name) })
}

func containsName(entries []ciliumio.SliceEndpoint, name string) bool {
	return gslices.ContainsFunc(entries, func(e ciliumio.SliceEndpoint) bool { return e.Name == name })
}

// isCurrent reports whether the server has this entry in the slice, and no write is unacknowledged.
func (s *slice) isCurrent(e ciliumio.SliceEndpoint) bool {
	return len(s.unacked) == 0 && s.stored.namespace == s.group.namespace && gslices.Contains(s.stored.endpoints, e)
}

// enqueue marks a slice as dirty.
func (p *planner) enqueue(s *slice) {
	s.queued = true
	p.bins.update(s)
	p.dirty = append(p.dirty, s)
}

// drain returns the dirty slices and clears the list.
func (p *planner) drain() []*slice {
	dirty := p.dirty
	p.dirty = nil
	return dirty
}

// lastIdentity is the last identity of an endpoint, 0 for an unknown one.
func (p *planner) lastIdentity(key slim.Key) int64 {
	e, _ := p.endpoints.Get(key)
	return e.identity
}

// sliceOf is the slice that an endpoint belongs in, nil for an unknown one.
func (p *planner) sliceOf(key slim.Key) *slice {
	e, _ := p.endpoints.Get(key)
	return e.slice
}

// upsert records the desired entry of an endpoint, and its size.
func (p *planner) upsert(key slim.Key, entry ciliumio.SliceEndpoint, bytes int) {
	delete(p.frozen, key)
	old, known := p.endpoints.Get(key)
	e := endpoint{slice: old.slice, identity: entry.IdentityID, bytes: bytes}
	if !p.synced {
		p.endpoints.Set(key, e)
		return
	}
	if known && p.staysIn(old, e) {
		e.slice.bytes += e.bytes - old.bytes
		p.endpoints.Set(key, e)
		if !e.slice.isCurrent(entry) {
			p.enqueue(e.slice)
		}
		p.bins.update(e.slice)
		return
	}
	if known {
		p.removeMember(key, old)
	}
	p.assign(key, e)
	p.enqueue(p.sliceOf(key))
	if known && old.slice.mayHaveStored(key.Name) {
		p.addMisplaced(old.slice, key, true)
	}
	for _, s := range p.misplaced[key] {
		p.bins.update(s)
	}
	p.enqueueKeepers(key) // the slice may have it from before, and need no write
}

// enqueueKeepers enqueues the slices that keep an endpoint until the one that it belongs in has it, if that is so.
func (p *planner) enqueueKeepers(key slim.Key) {
	if s := p.sliceOf(key); s == nil || !s.hasStored(key.Name) {
		return
	}
	for _, keeper := range p.misplaced[key] {
		p.enqueue(keeper)
	}
}

// staysIn reports whether an endpoint stays in its slice.
func (p *planner) staysIn(old, e endpoint) bool {
	if p.byIdentity && old.identity != e.identity {
		return false
	}
	return old.slice.bytes+e.bytes-old.bytes <= maxBytes || len(old.slice.members) == 1
}

// remove records that an endpoint should be in no slice.
func (p *planner) remove(key slim.Key) {
	delete(p.frozen, key)
	old, known := p.endpoints.Get(key)
	if !known {
		return
	}
	p.endpoints.Delete(key)
	if !p.synced {
		return
	}
	if !p.confirmed && old.slice.mayHaveStored(key.Name) {
		old.slice.reserved++
	}
	p.removeMember(key, old)
	p.enqueue(old.slice)
	for _, s := range p.misplaced[key] {
		if s.group.namespace == key.Namespace {
			delete(s.misplaced, key.Name)
		}
		s.deleteAfter = gslices.DeleteFunc(s.deleteAfter, func(awaited slim.Key) bool { return awaited == key })
		p.enqueue(s)
	}
	delete(p.misplaced, key)
}

// freeze records that an endpoint cannot be decoded: its entry stays as it is, in the slice that has it. One that is in
// no slice waits.
func (p *planner) freeze(key slim.Key) {
	p.frozen[key] = struct{}{}
	e, known := p.endpoints.Get(key)
	if !known || e.slice == nil || e.slice.mayHaveStored(key.Name) {
		return
	}
	// It was being moved, and cannot be.
	var to *slice
	for _, s := range p.misplaced[key] {
		if s.group.namespace == key.Namespace && s.hasStored(key.Name) && !p.isFull(s) && (to == nil || fuller(s, to)) {
			to = s
		}
	}
	if to == nil {
		return
	}
	from := e.slice
	p.removeMember(key, e)
	entry, _ := to.storedEntry(key.Name)
	e.identity = entry.IdentityID
	p.addMember(to, key, e)
	for _, s := range append(gslices.Clone(p.misplaced[key]), from) {
		p.enqueue(s)
	}
}

// fuller reports whether a slice has more endpoints than another.
func fuller(a, b *slice) bool {
	if len(a.stored.endpoints) != len(b.stored.endpoints) {
		return len(a.stored.endpoints) > len(b.stored.endpoints)
	}
	return a.name < b.name
}

// removeMember removes an endpoint from the members of its slice.
func (p *planner) removeMember(key slim.Key, e endpoint) {
	delete(e.slice.members, key.Name)
	e.slice.bytes -= e.bytes
	p.bins.update(e.slice)
}

// addMember makes an endpoint a member of a slice.
func (p *planner) addMember(s *slice, key slim.Key, e endpoint) {
	e.slice = s
	s.members[key.Name] = struct{}{}
	s.bytes += e.bytes
	p.endpoints.Set(key, e)
	p.bins.update(s)
	if _, was := s.misplaced[key.Name]; was {
		p.removeMisplaced(s, key)
	}
}

// assign makes an endpoint a member of a slice with room, or of a new one.
func (p *planner) assign(key slim.Key, e endpoint) {
	g := p.groupOf(key.Namespace, e.identity)
	s := p.bins.find(g)
	if s == nil || len(s.members) > 0 && s.bytes+e.bytes > maxBytes {
		s = p.addSlice(p.unusedName(), g)
	}
	p.addMember(s, key, e)
}

func (p *planner) unusedName() string {
	for {
		name := p.newName()
		if _, taken := p.slices[name]; !taken {
			return name
		}
	}
}

func (p *planner) addSlice(name string, g group) *slice {
	s := &slice{name: name, group: g, members: map[string]struct{}{}}
	p.slices[name] = s
	return s
}

// addMisplaced records an endpoint in a slice that it does not belong in.
func (p *planner) addMisplaced(s *slice, key slim.Key, keep bool) {
	if s.misplaced == nil {
		s.misplaced = map[string]bool{}
	}
	if _, known := s.misplaced[key.Name]; !known {
		p.misplaced[key] = append(p.misplaced[key], s)
	}
	s.misplaced[key.Name] = keep
	p.bins.update(s)
}

func (p *planner) removeMisplaced(s *slice, key slim.Key) {
	delete(s.misplaced, key.Name)
	p.unindexMisplaced(s, key)
	p.bins.update(s)
}

// unindexMisplaced removes a slice from the index of an endpoint.
func (p *planner) unindexMisplaced(s *slice, key slim.Key) {
	left := gslices.DeleteFunc(p.misplaced[key], func(other *slice) bool { return other == s })
	if p.misplaced[key] = left; len(left) == 0 {
		delete(p.misplaced, key)
	}
}

// observe records the state of a slice in the cache.
func (p *planner) observe(name string, now stored) {
	if !p.synced {
		p.initial[name] = now
		return
	}
	s := p.slices[name]
	switch {
	case s == nil:
		s = p.addSlice(name, group{namespace: now.namespace})
		s.closed = true // another client made it: it is emptied and deleted
	case s.undecodable:
	case now.revision <= s.stored.revision && s.stored.exists():
		s.stored.shareWith(now)
		return // not newer than the known state
	}
	s.undecodable = false
	p.setStored(s, now)
	p.enqueue(s)
}

// isTerminating reports whether a slice waits for its finalizers.
func (p *planner) isTerminating(name string) bool {
	if s := p.slices[name]; s != nil {
		return s.stored.terminating
	}
	return p.initial[name].terminating
}

// recordRefetch records the state of a slice that was read after a conflict.
func (p *planner) recordRefetch(name string, now stored) {
	s := p.slices[name]
	if s == nil || now.uid == s.stored.uid && now.revision < s.stored.revision {
		return
	}
	s.undecodable = false
	p.setStored(s, now)
	p.enqueue(s)
}

// recordDeleted records that a slice was deleted.
func (p *planner) recordDeleted(name string, uid slim.UID) {
	if !p.synced {
		delete(p.initial, name)
		return
	}
	s := p.slices[name]
	if s == nil || s.stored.uid != uid {
		return // it was recreated
	}
	p.setStored(s, stored{})
	p.enqueue(s)
}

// markUndecodable records that a slice cannot be decoded. Until it can, it is neither written nor deleted, and its
// endpoints go to other slices.
func (p *planner) markUndecodable(name string) {
	delete(p.initial, name)
	s := p.slices[name]
	if !p.synced || s == nil {
		return
	}
	s.closed, s.undecodable, s.stored = true, true, stored{}
	for _, member := range gslices.Sorted(maps.Keys(s.members)) {
		key := s.key(member)
		e, _ := p.endpoints.Get(key)
		p.removeMember(key, e)
		p.assign(key, e)
		p.enqueue(p.sliceOf(key))
	}
	p.enqueue(s) // to be dropped
}

// setStored replaces the state of a slice on the server. Slices that keep endpoints until this one has them are enqueued.
func (p *planner) setStored(s *slice, now stored) {
	if now.revision != s.stored.revision {
		s.unacked = nil // they cannot take effect any more: they conflict
	}
	s.stored = now
	p.bins.update(s)
	p.findMisplaced(s)
	for name := range s.misplaced {
		if other := p.sliceOf(s.key(name)); other != nil && other.hasStored(name) {
			p.enqueue(s)
		}
	}
	for _, entry := range now.endpoints {
		key := slim.Key{Namespace: now.namespace, Name: entry.Name}
		if p.sliceOf(key) == s {
			for _, other := range p.misplaced[key] {
				p.enqueue(other)
			}
		}
	}
}

// findMisplaced updates the endpoints that a slice has, or may have, and that belong in another.
func (p *planner) findMisplaced(s *slice) {
	before := maps.Clone(s.misplaced)
	for name := range before {
		p.removeMisplaced(s, s.key(name))
	}
	find := func(entries []ciliumio.SliceEndpoint) {
		for _, entry := range entries {
			key := s.key(entry.Name)
			if e, known := p.endpoints.Get(key); known && e.slice != s {
				p.addMisplaced(s, key, before[entry.Name] || p.initial != nil || !p.confirmed || s.closed)
			}
		}
	}
	if s.stored.namespace == s.group.namespace {
		find(s.stored.endpoints)
	}
	for _, d := range s.unacked {
		find(d.after)
	}
}

// detectDeleted records deletions without an event, as of a slice that is deleted before its creation is in the cache.
// deleted reports that a slice is missing in a cache that is as new as its revision.
func (p *planner) detectDeleted(deleted func(name string, asOf slim.Revision) bool) {
	for _, name := range gslices.Sorted(maps.Keys(p.slices)) {
		if s := p.slices[name]; s.stored.exists() && deleted(name, s.stored.revision) {
			p.recordDeleted(name, s.stored.uid)
		}
	}
}
