// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package endpointslice

import (
	"maps"
	gslices "slices"

	"github.com/skep-operator/skep/resources/stream/ciliumio"
	"github.com/skep-operator/skep/resources/stream/slim"
)

// plan knows which endpoints there are, which slice each belongs in, and what
// the slices on the server say. It decides what is to be written so that no
// endpoint is missing from all slices at any time: one that moves is added to its
// new slice first, and the old one keeps it until the server has that. It knows no
// clock and does no I/O, and is not safe for concurrent use.
type plan struct {
	capacity   int
	byIdentity bool
	newName    func() string

	begun     bool
	sure      bool             // endpoints are known as leaders before this one knew them
	found     map[string]shown // slices, until the plan has begun
	slices    map[string]*slice
	shelves   *shelves
	endpoints slim.KeyMap[endpoint]
	strays    map[slim.Key][]*slice // slices that show an endpoint that belongs elsewhere
	touched   []*slice              // since it was asked for last
}

// endpoint is one that is to be in a slice.
type endpoint struct {
	home     *slice // nil before the plan has begun
	identity int64
	bytes    int
}

// slice is one that is there, or is to be.
type slice struct {
	name    string
	group   group
	members map[string]struct{} // names of the endpoints that belong in it
	bytes   int                 // of them, about
	closed  bool                // takes no more endpoints
	queued  bool                // waits to be written
	writing bool                // is being written

	shown  shown
	doubts []doubt // writes upon it that are not answered yet
	// strays are the names of endpoints that it shows, or may show, and that belong
	// elsewhere. Some are to be kept until they are there; others are not: they were
	// written by somebody else, or are left of an earlier endpoint of the name.
	strays map[string]bool
	awaits []slim.Key // endpoints that are to be shown elsewhere before it is deleted
	// reserved is how many places are not free before it is sure that the endpoints
	// that have them are gone.
	reserved int

	at         place
	shelved    bool
	prev, next *slice
}

// shown is a slice as the server has it.
type shown struct {
	uid       slim.UID // zero if it is not there
	revision  slim.Revision
	namespace string
	endpoints []ciliumio.SliceEndpoint
}

func (s shown) exists() bool { return !s.uid.IsZero() }

// share keeps what a view keeps in the place of a copy of it.
func (s *shown) share(view shown) {
	if gslices.Equal(s.endpoints, view.endpoints) {
		s.endpoints = view.endpoints
	}
}

func shownOf(obj *ciliumio.EndpointSlice) shown {
	return shown{uid: obj.UID, revision: obj.ResourceVersion, namespace: obj.Of.String(), endpoints: obj.Endpoints}
}

// The size of a slice, in bytes of JSON. The server takes objects of 1.5 MB. A
// slice takes no more endpoints from the first limit on, and one that grows beyond
// the second has endpoints moved away when they change.
const (
	enoughBytes  = 1 << 20
	tooManyBytes = enoughBytes + enoughBytes/4
)

func newPlan(capacity int, byIdentity bool, newName func() string) *plan {
	return &plan{
		capacity: capacity, byIdentity: byIdentity, newName: newName,
		found: map[string]shown{}, slices: map[string]*slice{}, shelves: newShelves(capacity),
		strays: map[slim.Key][]*slice{},
	}
}

// groupOf is the group of an endpoint.
func (p *plan) groupOf(namespace string, identity int64) group {
	if !p.byIdentity {
		identity = 0
	}
	return group{namespace, identity}
}

func (s *slice) key(name string) slim.Key {
	return slim.Key{Namespace: s.group.namespace, Name: name}
}

// level is how many endpoints the slice has or keeps for others.
func (s *slice) level() int { return len(s.members) + len(s.strays) + s.reserved }

// place is where the slice stands, if it has room.
func (s *slice) place(capacity int) (at place, has bool) {
	at = place{s.group, s.queued, s.level()}
	return at, !s.closed && at.level < capacity && s.bytes < enoughBytes
}

// full reports whether no more endpoints can be added, so that there is no reason
// to wait for them.
func (p *plan) full(s *slice) bool { return len(s.members) >= p.capacity }

// shows reports whether the server has an endpoint in the slice, whatever becomes
// of the writes that are under way.
func (s *slice) shows(name string) bool {
	return s.shown.namespace == s.group.namespace && has(s.shown.endpoints, name) &&
		!gslices.ContainsFunc(s.doubts, func(d doubt) bool { return !has(d.will, name) })
}

// mayShow reports whether the server has an endpoint in the slice, or gets it by a
// write that is under way.
func (s *slice) mayShow(name string) bool {
	return s.shown.namespace == s.group.namespace && has(s.shown.endpoints, name) ||
		gslices.ContainsFunc(s.doubts, func(d doubt) bool { return has(d.will, name) })
}

func has(entries []ciliumio.SliceEndpoint, name string) bool {
	return gslices.ContainsFunc(entries, func(e ciliumio.SliceEndpoint) bool { return e.Name == name })
}

// says reports whether the server says this of an endpoint in the slice, and no
// write is under way that may change it.
func (s *slice) says(e ciliumio.SliceEndpoint) bool {
	return len(s.doubts) == 0 && s.shown.namespace == s.group.namespace && gslices.Contains(s.shown.endpoints, e)
}

// touch has a slice looked at.
func (p *plan) touch(s *slice) {
	s.queued = true
	p.shelves.put(s)
	p.touched = append(p.touched, s)
}

// take returns the slices that are to be looked at since the last call.
func (p *plan) take() []*slice {
	t := p.touched
	p.touched = nil
	return t
}

// lastIdentity is the identity that an endpoint had last, 0 for one that is not
// known.
func (p *plan) lastIdentity(key slim.Key) int64 {
	e, _ := p.endpoints.Get(key)
	return e.identity
}

// home is the slice that an endpoint belongs in, nil for one that is not known.
func (p *plan) home(key slim.Key) *slice {
	e, _ := p.endpoints.Get(key)
	return e.home
}

// upsert takes note of an endpoint as a slice should have it, in so many bytes.
func (p *plan) upsert(key slim.Key, says ciliumio.SliceEndpoint, bytes int) {
	old, known := p.endpoints.Get(key)
	e := endpoint{home: old.home, identity: says.IdentityID, bytes: bytes}
	if !p.begun {
		p.endpoints.Set(key, e)
		return
	}
	if known && p.fits(old, e) {
		e.home.bytes += e.bytes - old.bytes
		p.endpoints.Set(key, e)
		if !e.home.says(says) {
			p.touch(e.home)
		}
		p.shelves.put(e.home)
		return
	}
	if known {
		p.leave(key, old)
	}
	p.settle(key, e)
	p.touch(p.home(key))
	if known && old.home.mayShow(key.Name) {
		p.stray(old.home, key, true)
	}
	for _, s := range p.strays[key] {
		p.shelves.put(s)
	}
}

// fits reports whether an endpoint stays where it is.
func (p *plan) fits(old, e endpoint) bool {
	if p.byIdentity && old.identity != e.identity {
		return false
	}
	return old.home.bytes+e.bytes-old.bytes <= tooManyBytes || len(old.home.members) == 1
}

// remove takes note of an endpoint that is not to be in any slice.
func (p *plan) remove(key slim.Key) {
	old, known := p.endpoints.Get(key)
	if !known {
		return
	}
	p.endpoints.Delete(key)
	if !p.begun {
		return
	}
	if !p.sure && old.home.mayShow(key.Name) {
		old.home.reserved++
	}
	p.leave(key, old)
	p.touch(old.home)
	for _, s := range p.strays[key] {
		if s.group.namespace == key.Namespace {
			delete(s.strays, key.Name)
		}
		s.awaits = gslices.DeleteFunc(s.awaits, func(awaited slim.Key) bool { return awaited == key })
		p.touch(s)
	}
	delete(p.strays, key)
}

// leave takes an endpoint out of the members of its slice.
func (p *plan) leave(key slim.Key, e endpoint) {
	delete(e.home.members, key.Name)
	e.home.bytes -= e.bytes
	p.shelves.put(e.home)
}

// join makes an endpoint a member of a slice.
func (p *plan) join(s *slice, key slim.Key, e endpoint) {
	e.home = s
	s.members[key.Name] = struct{}{}
	s.bytes += e.bytes
	p.endpoints.Set(key, e)
	p.shelves.put(s)
	if _, was := s.strays[key.Name]; was {
		p.unstray(s, key)
	}
}

// settle finds a slice for an endpoint.
func (p *plan) settle(key slim.Key, e endpoint) {
	g := p.groupOf(key.Namespace, e.identity)
	s := p.shelves.find(g)
	if s == nil || len(s.members) > 0 && s.bytes+e.bytes > tooManyBytes {
		s = p.add(p.freeName(), g)
	}
	p.join(s, key, e)
}

func (p *plan) freeName() string {
	for {
		name := p.newName()
		if _, taken := p.slices[name]; !taken {
			return name
		}
	}
}

func (p *plan) add(name string, g group) *slice {
	s := &slice{name: name, group: g, members: map[string]struct{}{}}
	p.slices[name] = s
	return s
}

// stray takes note of an endpoint in a slice that it does not belong in.
func (p *plan) stray(s *slice, key slim.Key, keep bool) {
	if s.strays == nil {
		s.strays = map[string]bool{}
	}
	if _, known := s.strays[key.Name]; !known {
		p.strays[key] = append(p.strays[key], s)
	}
	s.strays[key.Name] = keep
	p.shelves.put(s)
}

func (p *plan) unstray(s *slice, key slim.Key) {
	delete(s.strays, key.Name)
	p.unlink(s, key)
	p.shelves.put(s)
}

// unlink has a slice not looked at any more for the sake of an endpoint.
func (p *plan) unlink(s *slice, key slim.Key) {
	left := gslices.DeleteFunc(p.strays[key], func(other *slice) bool { return other == s })
	if p.strays[key] = left; len(left) == 0 {
		delete(p.strays, key)
	}
}

// show takes note of a slice as the server has it.
func (p *plan) show(name string, now shown) {
	if !p.begun {
		p.found[name] = now
		return
	}
	s := p.slices[name]
	switch {
	case s == nil:
		s = p.add(name, group{namespace: now.namespace})
		s.closed = true // it is somebody else's, and has to go
	case now.revision <= s.shown.revision && s.shown.exists():
		s.shown.share(now)
		return // it is not newer than what is known
	}
	p.setShown(s, now)
	p.touch(s)
}

// read takes note of a slice as it was read when a write was refused.
func (p *plan) read(name string, now shown) {
	s := p.slices[name]
	if s == nil || now.uid == s.shown.uid && now.revision < s.shown.revision {
		return
	}
	p.setShown(s, now)
	p.touch(s)
}

// gone takes note of a slice that the server does not have any more.
func (p *plan) gone(name string, uid slim.UID) {
	if !p.begun {
		delete(p.found, name)
		return
	}
	s := p.slices[name]
	if s == nil || s.shown.uid != uid {
		return // it has been made anew
	}
	p.setShown(s, shown{})
	p.touch(s)
}

// setShown replaces what is known of a slice on the server. Slices that keep
// endpoints until this one has them are looked at.
func (p *plan) setShown(s *slice, now shown) {
	if now.revision != s.shown.revision {
		s.doubts = nil // they conflict
	}
	s.shown = now
	p.findStrays(s)
	for name := range s.strays {
		if home := p.home(s.key(name)); home != nil && home.shows(name) {
			p.touch(s)
		}
	}
	for _, entry := range now.endpoints {
		key := slim.Key{Namespace: now.namespace, Name: entry.Name}
		if p.home(key) == s {
			for _, other := range p.strays[key] {
				p.touch(other)
			}
		}
	}
}

// findStrays finds out which endpoints a slice shows, or may show, that belong
// elsewhere.
func (p *plan) findStrays(s *slice) {
	before := maps.Clone(s.strays)
	for name := range before {
		p.unstray(s, s.key(name))
	}
	find := func(entries []ciliumio.SliceEndpoint) {
		for _, entry := range entries {
			key := s.key(entry.Name)
			if e, known := p.endpoints.Get(key); known && e.home != s {
				p.stray(s, key, before[entry.Name] || p.found != nil || !p.sure || s.closed)
			}
		}
	}
	if s.shown.namespace == s.group.namespace {
		find(s.shown.endpoints)
	}
	for _, d := range s.doubts {
		find(d.will)
	}
}

// audit takes note of slices that are not on the server any more without that
// having been told: one that is deleted before its creation was seen is never seen
// at all. gone reports that of a slice, in a view as of its revision or later.
func (p *plan) audit(gone func(name string, asOf slim.Revision) bool) {
	for _, name := range gslices.Sorted(maps.Keys(p.slices)) {
		if s := p.slices[name]; s.shown.exists() && gone(name, s.shown.revision) {
			p.gone(name, s.shown.uid)
		}
	}
}
