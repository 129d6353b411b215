// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package cloudipam

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/skep-operator/skep/runtime/lifecycle"
)

// cloudState is the cached state of the cloud. Reads do not overlap, so that a later one is newer; the lock is never held
// during one.
type cloudState struct {
	provider Provider
	now      func() time.Time

	mu        sync.Mutex
	reads     uint64 // that have begun
	instances map[string]observed
	holders   holders
	subnets   map[string]Subnet // replaced, never changed
	wanted    map[string]bool   // instances to read
	unstable  error             // of the last read
	synced    chan struct{}     // closed after the first complete read
}

// observed is an instance as of a read.
type observed struct {
	*Instance           // nil if the cloud does not have it
	read      uint64    // the number of the read
	began     time.Time // of the read
	outdated  bool      // it is read before it is used again; what it had is not given to others until then
}

func newCloudState(p Provider, now func() time.Time) *cloudState {
	return &cloudState{provider: p, now: now, instances: map[string]observed{}, holders: newHolders(), wanted: map[string]bool{}, unstable: errNotRead, synced: make(chan struct{})}
}

var errNotRead = errors.New("the cloud was not read yet")

// begin returns the number of a read.
func (s *cloudState) begin() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reads++
	return s.reads
}

// begun is the number of the last read that has begun.
func (s *cloudState) begun() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.reads
}

// readAll replaces the state. An instance that was known stays until a read of it alone says that it does not exist: a
// filter, or a page that changed meanwhile, can hide it. missing are those.
func (s *cloudState) readAll(ctx context.Context) (missing []string, err error) {
	number, began := s.begin(), s.now()
	var state *State
	err = lifecycle.Recover(func() (err error) { state, err = s.provider.Read(ctx); return err })
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.unstable = err; err != nil {
		return nil, err
	}
	before := s.instances
	s.instances, s.holders = make(map[string]observed, len(state.Instances)), newHolders()
	for id, i := range state.Instances {
		s.set(id, observed{Instance: i, read: number, began: began})
	}
	for id, was := range before {
		if _, ok := s.instances[id]; ok || was.outdated {
			continue
		}
		if s.set(id, was); was.Instance != nil {
			s.wanted[id] = true
			missing = append(missing, id)
		}
	}
	s.subnets = state.Subnets
	if !isClosed(s.synced) {
		close(s.synced)
	}
	slices.Sort(missing)
	return missing, nil
}

// readWanted reads the instances that were requested, in one call. It returns their ids.
func (s *cloudState) readWanted(ctx context.Context) (ids []string, err error) {
	s.mu.Lock()
	ids = slices.Sorted(maps.Keys(s.wanted))
	clear(s.wanted)
	s.mu.Unlock()
	if len(ids) == 0 {
		return nil, nil
	}
	number, began := s.begin(), s.now()
	var instances map[string]*Instance
	err = lifecycle.Recover(func() (err error) { instances, err = s.provider.ReadInstances(ctx, ids); return err })
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.unstable = err; err != nil {
		for _, id := range ids {
			s.wanted[id] = true
		}
		return nil, err
	}
	for _, id := range ids {
		s.set(id, observed{Instance: instances[id], read: number, began: began})
	}
	return ids, nil
}

// failed reports whether the last read has failed.
func (s *cloudState) failed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.unstable != nil
}

// want requests a read of an instance.
func (s *cloudState) want(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.wanted[id] = true
}

// get returns an instance, and the error of the last read.
func (s *cloudState) get(id string) (i observed, known bool, unstable error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	i, known = s.instances[id]
	if i.outdated {
		return observed{}, false, s.unstable
	}
	return i, known, s.unstable
}

// forget has an instance read before it is used again.
func (s *cloudState) forget(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.remove(id)
	delete(s.wanted, id)
}

// outdate forgets an instance that was read before a time, to the second: another machine may have had its id. The addresses that it had
// are given to no other before it is read again.
func (s *cloudState) outdate(id string, before time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if i, ok := s.instances[id]; ok && i.began.Before(before.Add(time.Second)) {
		i.outdated = true
		s.instances[id] = i
	}
}

// set sets what is known of an instance. The caller has the lock.
func (s *cloudState) set(id string, now observed) {
	s.remove(id)
	s.instances[id] = now
	for key := range now.keys() {
		s.holders.add(key, id)
	}
}

// remove removes an instance. The caller has the lock.
func (s *cloudState) remove(id string) {
	for key := range s.instances[id].keys() {
		s.holders.remove(key, id)
	}
	delete(s.instances, id)
}

// allSubnets is shared: it is not changed.
func (s *cloudState) allSubnets() map[string]Subnet {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.subnets
}

// use subtracts assigned addresses from a subnet, until the next read.
func (s *cloudState) use(subnet string, count int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	of, ok := s.subnets[subnet]
	if !ok {
		return
	}
	of.Free = max(0, of.Free-count)
	s.subnets = maps.Clone(s.subnets)
	s.subnets[subnet] = of
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
