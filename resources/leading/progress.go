// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package leading

import (
	"maps"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// WriteProgress is how far the writes of leaders went: what a view of the cluster has to
// show before a new leader decides anything based on it. Deletions do not count: an
// object that is gone and still seen leads to no decision that takes it for free.
type WriteProgress struct {
	// Complete says that nothing was written that Revisions does not name.
	Complete bool `json:"complete"`
	// Revisions are resourceVersions by resource, as in ciliumnodes.cilium.io.
	Revisions map[string]uint64 `json:"revisions,omitempty"`
}

// Object names the object of a write, or the collection if the name is generated.
type Object struct {
	Resource    schema.GroupVersionResource
	Namespace   string
	Name        string
	Subresource string
}

// Tracker records how far the writes of this process and of leaders before it went. It
// belongs to the process, and is safe for concurrent use.
type Tracker struct {
	// Now reads the time; tests set another clock.
	Now func() time.Time

	mu         sync.Mutex
	terms      int  // opened so far
	complete   bool // resources without an entry were not written
	resources  map[string]*resourceProgress
	unanswered time.Time // when the last write ended whose outcome is unknown
}

// resourceProgress is what is known of one resource.
type resourceProgress struct {
	known    bool // nothing was written beyond revision, pending writes excepted
	revision uint64
	pending  map[Object]time.Time // unanswered writes, and when they were sent
	creating int                  // requests under way for objects that have no name yet
}

// finish ends a request.
func (p *resourceProgress) finish(o Object) {
	if o.Name == "" {
		p.creating--
		return
	}
	delete(p.pending, o)
}

// NewTracker returns an empty tracker.
func NewTracker() *Tracker {
	return &Tracker{Now: time.Now, resources: map[string]*resourceProgress{}}
}

// progress is called with the lock held.
func (t *Tracker) progress(resource schema.GroupVersionResource) *resourceProgress {
	name := resource.GroupResource().String()
	p := t.resources[name]
	if p == nil {
		p = &resourceProgress{known: t.complete, pending: map[Object]time.Time{}}
		t.resources[name] = p
	}
	return p
}

// Begin begins a term. before is the progress of all leaders before it, nil if no other
// process has led.
func (t *Tracker) Begin(before *WriteProgress) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.terms++
	if before != nil {
		t.importFrom(*before)
	}
}

// importFrom is called with the lock held.
func (t *Tracker) importFrom(w WriteProgress) {
	t.complete = w.Complete
	for name, p := range t.resources {
		_, named := w.Revisions[name]
		p.known = w.Complete || named
	}
	for name, revision := range w.Revisions {
		p := t.progress(schema.ParseGroupResource(name).WithVersion(""))
		p.known, p.revision = true, max(p.revision, revision)
	}
}

// Sent records that a request is under way. It returns when an earlier one for the same
// object was sent that is unanswered, zero if there is none.
func (t *Tracker) Sent(o Object) (earlier time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	p := t.progress(o.Resource)
	if o.Name == "" {
		p.creating++
		return time.Time{}
	}
	earlier = p.pending[o]
	p.pending[o] = t.Now()
	return earlier
}

// Refused records that a request changed nothing; an earlier one, if there is one, still
// may.
func (t *Tracker) Refused(o Object, earlier time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	p := t.progress(o.Resource)
	p.finish(o)
	if !earlier.IsZero() {
		p.pending[o] = earlier
	}
}

// Stored records the revision of an object as stored. An earlier request for it cannot
// change it any more: it would conflict.
func (t *Tracker) Stored(o Object, revision uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	p := t.progress(o.Resource)
	p.finish(o)
	p.revision = max(p.revision, revision)
}

// MarkUnanswered records that a request got no response, or one that is not believed.
// The name of an object that it may have created is not known.
func (t *Tracker) MarkUnanswered(o Object) {
	if o.Name == "" {
		t.MarkUnknown(o)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.unanswered = t.Now()
}

// MarkUnknown records that a request may have changed the resource in an unknown way.
func (t *Tracker) MarkUnknown(o Object) {
	t.mu.Lock()
	defer t.mu.Unlock()
	p := t.progress(o.Resource)
	p.finish(o)
	p.known = false
}

// pending are the unanswered writes, and when they were sent.
func (t *Tracker) pending() map[Object]time.Time {
	t.mu.Lock()
	defer t.mu.Unlock()
	all := map[Object]time.Time{}
	for _, p := range t.resources {
		if p.known { // else they make no difference
			maps.Copy(all, p.pending)
		}
	}
	return all
}

// get returns what is known of a resource, and one of its pending writes.
func (t *Tracker) get(resource schema.GroupVersionResource) (revision uint64, known bool, pending *Object, since time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	p := t.progress(resource)
	for o, at := range p.pending {
		return p.revision, p.known, &o, at
	}
	return p.revision, p.known, nil, time.Time{}
}

// recordSynced records the revision of a complete view.
func (t *Tracker) recordSynced(resource schema.GroupVersionResource, revision uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	p := t.progress(resource)
	p.known, p.revision = true, max(p.revision, revision)
}

// WriteProgress is what the next leader has to see.
func (t *Tracker) WriteProgress() WriteProgress {
	t.mu.Lock()
	defer t.mu.Unlock()
	w := WriteProgress{Complete: t.complete, Revisions: map[string]uint64{}}
	for name, p := range t.resources {
		if p.known && len(p.pending)+p.creating == 0 {
			w.Revisions[name] = p.revision
		} else {
			w.Complete = false
		}
	}
	return w
}
