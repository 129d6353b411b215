// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package kvstore

import "bytes"

// table is what a mirror knows: what should be under its prefix, and what is.
// Names are keys without the prefix. It has no lock of its own.
type table struct {
	desired map[string][]byte
	seen    map[string]sighting
	// gone are the revisions at which names of ours were found gone: what is
	// heard of them from before that is old.
	gone map[string]int64
	// wrote are names that this process wrote, and so may delete.
	wrote map[string]struct{}
	// doubtful are names of which it is not known what became of a put: it may be
	// done long after we gave it up, by a member that stood still.
	doubtful map[string]struct{}
	// complete is whether desired is all there is to be, and listed whether
	// seen is all that was there.
	complete, listed bool
	// owns says which keys of others are deleted once desired is complete.
	owns func(name string) bool
}

// sighting is the newest known state of a key.
type sighting struct {
	value    []byte
	lease    LeaseID
	revision int64
}

func newTable(owns func(string) bool) *table {
	return &table{
		desired: map[string][]byte{}, seen: map[string]sighting{},
		gone: map[string]int64{}, wrote: map[string]struct{}{}, doubtful: map[string]struct{}{}, owns: owns,
	}
}

// step is what is to be done about a name.
type step int

const (
	nothing step = iota
	put
	remove
)

// plan says what is to be done about a name. holds reports whether a lease is
// one of ours.
func (t *table) plan(name string, holds func(LeaseID) bool) step {
	if !t.listed {
		return nothing // not before it is known what is there
	}
	want, wanted := t.desired[name]
	is, exists := t.seen[name]
	switch {
	case wanted && exists && bytes.Equal(want, is.value) && holds(is.lease):
		return nothing
	case wanted:
		return put
	case exists && t.mayDelete(name, holds):
		return remove
	}
	return nothing
}

func (t *table) mayDelete(name string, holds func(LeaseID) bool) bool {
	if _, ours := t.wrote[name]; ours {
		return true
	}
	if _, doubtful := t.doubtful[name]; doubtful && holds(t.seen[name].lease) {
		return true
	}
	return t.complete && t.owns != nil && t.owns(name)
}

// upserted takes in that a key was seen, unless a newer state is known.
func (t *table) upserted(name string, s sighting) {
	if s.revision < t.newest(name) {
		return
	}
	if want, ok := t.desired[name]; ok && bytes.Equal(want, s.value) {
		s.value = want // one copy
	}
	t.seen[name] = s
	delete(t.gone, name)
}

// deleted takes in that a key was seen to be gone.
func (t *table) deleted(name string, revision int64) {
	if revision < t.newest(name) {
		return
	}
	delete(t.seen, name)
	_, wanted := t.desired[name]
	if _, ours := t.wrote[name]; wanted || ours {
		t.gone[name] = revision
	}
}

// newest is the revision of what is known of a name, 0 if nothing is.
func (t *table) newest(name string) int64 { return max(t.seen[name].revision, t.gone[name]) }

// forget drops what is known of a name that is neither wanted nor there.
func (t *table) forget(name string) {
	_, wanted := t.desired[name]
	if _, exists := t.seen[name]; !wanted && !exists {
		delete(t.wrote, name)
		delete(t.gone, name)
	}
}

// replaced takes in that revisions start anew.
func (t *table) replaced() {
	clear(t.gone)
	for name, s := range t.seen {
		s.revision = 0
		t.seen[name] = s
	}
}

// stale are the names that are there and should not be.
func (t *table) stale(holds func(LeaseID) bool) []string {
	var names []string
	for name := range t.seen {
		if _, wanted := t.desired[name]; !wanted && t.mayDelete(name, holds) {
			names = append(names, name)
		}
	}
	return names
}
