// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package lbipam

import (
	"maps"
	"net/netip"
	"slices"

	"github.com/skep-operator/skep/resources/domain/alloc"
)

// waiting are the Services that miss an address, by what they wait for.
type waiting struct {
	services map[*service][]alloc.Family // with the families of which they miss any address
	byFamily [2][]*service               // the oldest first
	byAddr   map[netip.Addr]map[*service]bool
	byKey    map[string]map[*service]bool
}

func newWaiting() waiting {
	return waiting{services: map[*service][]alloc.Family{}, byAddr: map[netip.Addr]map[*service]bool{}, byKey: map[string]map[*service]bool{}}
}

// all are the Services that wait.
func (w *waiting) all() []*service { return slices.Collect(maps.Keys(w.services)) }

// add adds a Service that misses requested addresses, or any address of these families. It is not changed before it is
// removed.
func (w *waiting) add(s *service, missing []alloc.Family) {
	w.services[s] = missing
	s.waitsFor = waitsFor{slices.Clone(s.request.ips), s.request.sharing.key}
	for _, f := range missing {
		i, _ := slices.BinarySearchFunc(w.byFamily[f], s, oldestFirst)
		w.byFamily[f] = slices.Insert(w.byFamily[f], i, s)
	}
	for _, addr := range s.waitsFor.addrs {
		insert(w.byAddr, addr, s)
	}
	if s.waitsFor.key != "" {
		insert(w.byKey, s.waitsFor.key, s)
	}
}

// waitsFor is under what a Service waits.
type waitsFor struct {
	addrs []netip.Addr
	key   string
}

func (w *waiting) remove(s *service) {
	missing, ok := w.services[s]
	if !ok {
		return
	}
	delete(w.services, s)
	for _, f := range missing {
		if i, found := slices.BinarySearchFunc(w.byFamily[f], s, oldestFirst); found {
			w.byFamily[f] = slices.Delete(w.byFamily[f], i, i+1)
		}
	}
	for _, addr := range s.waitsFor.addrs {
		remove(w.byAddr, addr, s)
	}
	remove(w.byKey, s.waitsFor.key, s)
	s.waitsFor = waitsFor{}
}

func insert[K comparable](index map[K]map[*service]bool, key K, s *service) {
	if index[key] == nil {
		index[key] = map[*service]bool{}
	}
	index[key][s] = true
}

func remove[K comparable](index map[K]map[*service]bool, key K, s *service) {
	delete(index[key], s)
	if len(index[key]) == 0 {
		delete(index, key)
	}
}

// retry offers what was released to Services that wait, the oldest first.
func (a *allocator) retry() {
	for len(a.released) > 0 {
		again, opened := map[*service]bool{}, map[*pool]bool{}
		for _, r := range a.released {
			a.collectRetries(r, again, opened)
		}
		a.released = nil
		a.reconcile(slices.Collect(maps.Keys(again)))
		for _, p := range a.order {
			if opened[p] {
				a.fill(p)
			}
		}
	}
}

// collectRetries collects the Services that wait for an address or for its sharing key, and the full pools that it is of.
func (a *allocator) collectRetries(r released, again map[*service]bool, opened map[*pool]bool) {
	maps.Copy(again, a.waiting.byAddr[r.addr])
	maps.Copy(again, a.waiting.byKey[r.sharingKey])
	if l := a.leases.byAddr[r.addr]; l != nil {
		for s := range l.others(nil, holds) {
			maps.Copy(again, a.waiting.byKey[s.request.sharing.key])
		}
		return
	}
	f := alloc.FamilyOf(r.addr)
	for _, p := range a.order {
		if p.full[f] && p.covers(r.addr) {
			p.full[f] = false
			opened[p] = true
		}
	}
}

// fill reconciles Services that wait for any address of a pool, until it is full.
func (a *allocator) fill(p *pool) {
	for f := range p.full {
		list := &a.waiting.byFamily[f]
		for i := 0; i < len(*list) && !p.full[f] && p.serves(); {
			s := (*list)[i]
			if p.selects(s) {
				a.reconcile([]*service{s})
			}
			if i < len(*list) && (*list)[i] == s { // it still waits
				i++
			}
		}
	}
}
