// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package endpointslice

import (
	"maps"
	gslices "slices"
	"unicode/utf8"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/skep-operator/skep/resources/api/v2alpha1"
	"github.com/skep-operator/skep/resources/stream/ciliumio"
	"github.com/skep-operator/skep/resources/stream/slim"
)

// contentFunc returns the desired entry of an endpoint, false for none. last is the identity in a slice.
type contentFunc func(key slim.Key, last int64) (v2alpha1.CoreCiliumEndpoint, bool)

// unsafeToDrop reports whether a write would remove an endpoint that may exist: it is missing, or was deleted, in a cache
// that may be older than the slice.
func (p *planner) unsafeToDrop(o writeOp) bool {
	s := o.slice
	if p.confirmed {
		return false
	}
	return gslices.ContainsFunc(s.stored.endpoints, func(entry ciliumio.SliceEndpoint) bool {
		e, known := p.endpoints.Get(slim.Key{Namespace: s.stored.namespace, Name: entry.Name})
		elsewhere := known && e.slice != s && e.slice.hasStored(entry.Name)
		return !elsewhere && !(containsName(o.after, entry.Name) && s.stored.namespace == s.group.namespace)
	})
}

// opKind is the request of a write.
type opKind uint8

const (
	opNone opKind = iota
	opCreate
	opUpdate
	opDelete
)

// writeOp is a write of a slice, with the state that it replaces.
type writeOp struct {
	kind     opKind
	slice    *slice
	base     stored
	object   *v2alpha1.CiliumEndpointSlice // nil to delete it
	after    []ciliumio.SliceEndpoint      // the entries that the server has afterwards
	copies   []string                      // names of endpoints of object that stay as the server has them
	inserted int                           // endpoints that are new in the slice, or changed
	removed  int
}

// nextOp is the next write of a slice.
func (p *planner) nextOp(name string, content contentFunc) writeOp {
	s := p.slices[name]
	if s == nil || s.undecodable {
		return writeOp{slice: s}
	}
	o := writeOp{slice: s, base: s.stored}
	object := &v2alpha1.CiliumEndpointSlice{
		TypeMeta:   metav1.TypeMeta{APIVersion: v2alpha1.SchemeGroupVersion.String(), Kind: "CiliumEndpointSlice"},
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: s.stored.uid.API(), ResourceVersion: s.stored.revision.String()},
		Namespace:  s.group.namespace, Endpoints: []v2alpha1.CoreCiliumEndpoint{},
	}
	for _, endpoint := range p.desiredNames(s) {
		if e, state := p.desired(s.key(endpoint), content); state == decoded {
			object.Endpoints = append(object.Endpoints, e)
			o.after = append(o.after, ciliumio.SliceEndpointOf(&e))
		} else if entry, exists := s.storedEntry(endpoint); state == undecoded && exists {
			object.Endpoints = append(object.Endpoints, v2alpha1.CoreCiliumEndpoint{Name: endpoint})
			o.after, o.copies = append(o.after, entry), append(o.copies, endpoint)
		}
	}
	o.inserted, o.removed = countChanges(s.stored.endpoints, o.after)
	switch {
	case len(o.after) == 0 && (!s.stored.exists() || p.deleteDeferred(s)), p.unsafeToDrop(o):
		return writeOp{slice: s}
	case len(o.after) == 0 && !s.stored.terminating: // a terminating one waits for its finalizers
		o.kind = opDelete
		return o
	case !s.stored.exists():
		o.kind, object.UID, object.ResourceVersion = opCreate, "", ""
	case o.inserted+o.removed > 0 || len(o.after) != len(s.stored.endpoints) || s.stored.namespace != s.group.namespace:
		o.kind = opUpdate
	default:
		return writeOp{slice: s}
	}
	o.object = object
	return o
}

// desiredState is what is known of the desired entry of an endpoint.
type desiredState uint8

const (
	absent desiredState = iota
	undecoded
	decoded
)

// desired is the desired entry of an endpoint.
func (p *planner) desired(key slim.Key, content contentFunc) (e v2alpha1.CoreCiliumEndpoint, state desiredState) {
	return p.desiredAfter(key, p.lastIdentity(key), content)
}

// desiredAfter is the desired entry of an endpoint which has had an identity. What it is made of may go while it is made: it is absent only if it can be
// decoded before and then.
func (p *planner) desiredAfter(key slim.Key, last int64, content contentFunc) (e v2alpha1.CoreCiliumEndpoint, state desiredState) {
	if p.undecodable(key) {
		return e, undecoded
	}
	e, ok := content(key, last)
	switch {
	case ok:
		return e, decoded
	case p.undecodable(key):
		return e, undecoded
	}
	return e, absent
}

// storedEntry is the entry of an endpoint on the server.
func (s *slice) storedEntry(name string) (e ciliumio.SliceEndpoint, exists bool) {
	i := gslices.IndexFunc(s.stored.endpoints, func(e ciliumio.SliceEndpoint) bool { return e.Name == name })
	if i < 0 || s.stored.namespace != s.group.namespace {
		return e, false
	}
	return s.stored.endpoints[i], true
}

// desiredNames are the names of the endpoints that a slice should have: its members, and misplaced ones that their slice
// does not have yet. They are sorted.
func (p *planner) desiredNames(s *slice) []string {
	names := gslices.AppendSeq(make([]string, 0, s.fill()), maps.Keys(s.members))
	for name, keep := range s.misplaced {
		if keep && !p.sliceOf(s.key(name)).hasStored(name) {
			names = append(names, name)
		}
	}
	gslices.Sort(names)
	return names
}

// deleteDeferred reports whether an endpoint has to be in another slice before this one is deleted.
func (p *planner) deleteDeferred(s *slice) bool {
	for len(s.deleteAfter) > 0 {
		key := s.deleteAfter[0]
		if e, known := p.endpoints.Get(key); known && !e.slice.hasStored(key.Name) {
			return true
		}
		s.deleteAfter = s.deleteAfter[1:]
		p.unindexMisplaced(s, key)
	}
	return false
}

// countChanges counts the entries that a write changes.
func countChanges(before, after []ciliumio.SliceEndpoint) (inserted, removed int) {
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

// unackedWrite are the entries of a slice if a write without a response takes effect. A repeated one, as while the server
// is unreachable, is counted.
type unackedWrite struct {
	after []ciliumio.SliceEndpoint
	times int
}

func (s *slice) addUnacked(will []ciliumio.SliceEndpoint) {
	if last := len(s.unacked) - 1; last >= 0 && gslices.Equal(s.unacked[last].after, will) {
		s.unacked[last].times++
		return
	}
	s.unacked = append(s.unacked, unackedWrite{will, 1})
}

// retractUnacked removes the last unacknowledged write.
func (s *slice) retractUnacked() {
	last := len(s.unacked) - 1
	if s.unacked[last].times--; s.unacked[last].times == 0 {
		s.unacked = s.unacked[:last]
	}
}

// recordStart records that a write has started, or that there is none: later changes enqueue the slice again.
func (p *planner) recordStart(o writeOp) {
	s := o.slice
	s.queued = false
	if o.kind != opNone {
		s.addUnacked(o.after)
		s.writing = true
	}
	p.findMisplaced(s)
	p.bins.update(s)
	p.dropIfUnused(s)
}

// recordFailure records that a write failed and is retried. A refused one has had no effect.
func (p *planner) recordFailure(o writeOp, refused bool) {
	s := o.slice
	if refused && s.stored.revision == o.base.revision && len(s.unacked) > 0 {
		s.retractUnacked()
		p.findMisplaced(s)
		for name := range s.members {
			p.enqueueKeepers(s.key(name))
		}
	}
	s.writing = false
	s.queued = true
	p.bins.update(s)
}

// dropIfUnused drops a slice that does not exist and has no endpoints.
func (p *planner) dropIfUnused(s *slice) {
	if s.queued || s.writing || s.stored.exists() || len(s.members) > 0 || p.slices[s.name] != s {
		return
	}
	for _, key := range s.deleteAfter {
		p.unindexMisplaced(s, key)
	}
	for name := range maps.Clone(s.misplaced) {
		p.removeMisplaced(s, s.key(name))
	}
	p.bins.remove(s)
	delete(p.slices, s.name)
}

// recordWrite records the state of a slice on the server after a write.
func (p *planner) recordWrite(o writeOp, uid slim.UID, revision slim.Revision) {
	s := o.slice
	s.writing = false
	if o.kind == opDelete {
		if s.stored.uid == o.base.uid {
			p.setStored(s, stored{})
		}
		if len(s.members) > 0 {
			p.enqueue(s)
		}
		p.dropIfUnused(s)
		return
	}
	if s.undecodable || s.stored.exists() && revision <= s.stored.revision {
		p.dropIfUnused(s)
		return
	}
	p.setStored(s, stored{uid: uid, revision: revision, namespace: o.object.Namespace, endpoints: o.after, terminating: o.base.terminating})
}

// assumedBytes is the assumed size of an undecodable endpoint.
const assumedBytes = 256

// size is about how many bytes an endpoint has in a slice, and no fewer than it has.
func size(e *v2alpha1.CoreCiliumEndpoint) int {
	n := 180 + textSize(e.Name) + textSize(e.ServiceAccount) + textSize(e.PodUID)
	if e.Networking != nil {
		n += textSize(e.Networking.NodeIP)
		for _, pair := range e.Networking.Addressing {
			n += 24 + textSize(pair.IPv4) + textSize(pair.IPv6)
		}
	}
	for _, port := range e.NamedPorts {
		n += 48 + textSize(port.Name) + textSize(port.Protocol)
	}
	return n
}

// textSize is how many bytes a text has in JSON at most, where what is not plain is escaped.
func textSize(text string) int {
	n := len(text)
	for i := range len(text) {
		switch c := text[i]; {
		case c < ' ', c >= utf8.RuneSelf, c == '"', c == '\\', c == '<', c == '>', c == '&', c == 0x7f:
			n += len(`\u0000`) - 1
		}
	}
	return n
}
