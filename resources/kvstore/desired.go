// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package kvstore

import (
	"bytes"
	"slices"
)

// syncState is the state of a syncer: the desired and the observed keys under its
// prefix. Names are keys without the prefix. The caller locks.
type syncState struct {
	desired  map[string][]byte
	observed map[string]observedKey
	// deletedAt are the revisions at which own names were found deleted. Older
	// observations are stale.
	deletedAt map[string]int64
	// written are names that this process wrote and so may delete.
	written map[string]struct{}
	// complete: desired has the whole initial state. listed: observed has all
	// keys of the first listing. confirmed: keys of others may be deleted.
	complete, listed, confirmed bool
	// owns selects the keys of others to delete once confirmed.
	owns func(name string) bool
}

// observedKey is the latest known state of a key.
type observedKey struct {
	value    []byte
	lease    LeaseID
	revision int64
}

func newSyncState() *syncState {
	return &syncState{
		desired: map[string][]byte{}, observed: map[string]observedKey{},
		deletedAt: map[string]int64{}, written: map[string]struct{}{},
		owns: func(string) bool { return true },
	}
}

// action is what a name needs to reach its desired state.
type action int

const (
	noAction action = iota
	putKey
	deleteKey
)

// nextAction returns the action for a name. holds reports whether a lease is one of
// ours.
func (s *syncState) nextAction(name string, holds func(LeaseID) bool) action {
	if !s.listed {
		return noAction // not before the first listing
	}
	want, wanted := s.desired[name]
	is, exists := s.observed[name]
	switch {
	case wanted && exists && bytes.Equal(want, is.value) && holds(is.lease):
		return noAction
	case wanted:
		return putKey
	case exists && s.mayDelete(name):
		return deleteKey
	}
	return noAction
}

// isDone reports whether a key is there as it is desired.
func (s *syncState) isDone(name string, holds func(LeaseID) bool) bool {
	_, wanted := s.desired[name]
	return wanted && s.listed && s.nextAction(name, holds) == noAction
}

func (s *syncState) mayDelete(name string) bool {
	if _, ours := s.written[name]; ours {
		return true
	}
	return s.confirmed && s.owns(name)
}

// undesired returns the names that exist and are not desired.
func (s *syncState) undesired() (names []string) {
	for name := range s.observed {
		if _, wanted := s.desired[name]; !wanted {
			names = append(names, name)
		}
	}
	return names
}

// observePut records an observed key, unless a newer state is known.
func (s *syncState) observePut(name string, key observedKey) {
	if key.revision < s.lastRevision(name) {
		return
	}
	if want, ok := s.desired[name]; ok && bytes.Equal(want, key.value) {
		key.value = want // one copy
	}
	s.observed[name] = key
	delete(s.deletedAt, name)
}

// observeDelete records that a key was deleted, unless a newer state is known.
func (s *syncState) observeDelete(name string, revision int64) {
	if revision < s.lastRevision(name) {
		return
	}
	delete(s.observed, name)
	_, wanted := s.desired[name]
	if _, ours := s.written[name]; wanted || ours {
		s.deletedAt[name] = revision
	}
}

// lastRevision returns the revision of the known state of a name, 0 for none.
func (s *syncState) lastRevision(name string) int64 {
	return max(s.observed[name].revision, s.deletedAt[name])
}

// prune drops the state of a name that is neither desired nor observed.
func (s *syncState) prune(name string) {
	_, wanted := s.desired[name]
	if _, exists := s.observed[name]; !wanted && !exists {
		delete(s.written, name)
		delete(s.deletedAt, name)
	}
}

// resetRevisions makes all known revisions older than any new one.
func (s *syncState) resetRevisions() {
	clear(s.deletedAt)
	for name, key := range s.observed {
		key.revision = 0
		s.observed[name] = key
	}
}

// stale returns the names that exist, are not desired and may be deleted.
func (s *syncState) stale() []string {
	return slices.DeleteFunc(s.undesired(), func(name string) bool { return !s.mayDelete(name) })
}
