// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package cloudipam

import (
	"slices"
	"sync"
	"time"
)

// Listed is an interface as a provider reads it, for Recent. Its methods do not change it.
type Listed[I any] interface {
	// Key is the id of the interface, and of its instance.
	Key() (id, instance string)
	// Holds are its primary address, "" in clouds without one, its other addresses and its prefixes.
	Holds() (primary string, addresses, prefixes []string)
	// With is a copy that has others.
	With(addresses, prefixes []string) I
}

// Recent are changes that a cloud has confirmed, and may not show yet: those of clouds that are eventually consistent. Without
// them an address that is not shown would be assigned once more. The zero value is ready for use, by many at once.
type Recent[I Listed[I]] struct {
	mu      sync.Mutex
	changes map[string]*addition[I] // by interface
}

// addition is what was added to an interface.
type addition[I Listed[I]] struct {
	isNew     bool
	created   I // the interface itself
	addresses []string
	prefixes  []string
	until     time.Time
}

// recentAge is how long a cloud may not show a change.
const recentAge = 30 * time.Second

// Created remembers a new interface.
func (r *Recent[I]) Created(i I, now time.Time) {
	id, _ := i.Key()
	r.update(id, now, func(a *addition[I]) { a.isNew, a.created = true, i })
	r.taken(id, held(i))
}

// Assigned remembers what was assigned to an interface.
func (r *Recent[I]) Assigned(id string, addresses, prefixes []string, now time.Time) {
	r.update(id, now, func(a *addition[I]) {
		a.addresses = append(a.addresses, addresses...)
		a.prefixes = append(a.prefixes, prefixes...)
	})
	r.taken(id, slices.Concat(addresses, prefixes))
}

// held are all addresses and prefixes of an interface.
func held[I Listed[I]](i I) []string {
	primary, addresses, prefixes := i.Holds()
	all := slices.Concat(addresses, prefixes)
	if primary != "" {
		all = append(all, primary)
	}
	return all
}

// taken forgets what other interfaces had of the addresses and prefixes of one: they have been deleted since.
func (r *Recent[I]) taken(by string, these []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for id, a := range r.changes {
		if id != by {
			a.remove(func(one string) bool { return slices.Contains(these, one) })
		}
	}
}

func (r *Recent[I]) update(id string, now time.Time, edit func(*addition[I])) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.changes == nil {
		r.changes = map[string]*addition[I]{}
	}
	if r.changes[id] == nil || now.After(r.changes[id].until) {
		r.changes[id] = &addition[I]{}
	}
	edit(r.changes[id])
	r.changes[id].until = now.Add(recentAge)
}

// Removed forgets addresses that are unassigned, before they are.
func (r *Recent[I]) Removed(id string, addresses []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if a := r.changes[id]; a != nil {
		a.remove(func(one string) bool { return slices.Contains(addresses, one) })
	}
}

// remove takes off addresses and prefixes. An interface is no more without its primary address.
func (a *addition[I]) remove(isGone func(string) bool) {
	without := func(list []string) []string { return slices.DeleteFunc(slices.Clone(list), isGone) }
	a.addresses, a.prefixes = without(a.addresses), without(a.prefixes)
	if !a.isNew {
		return
	}
	primary, addresses, prefixes := a.created.Holds()
	if primary != "" && isGone(primary) {
		a.isNew = false
		return
	}
	a.created = a.created.With(without(addresses), without(prefixes))
}

// Complete adds to what a cloud shows of instances, by their ids and those of interfaces, what it does not show yet. Nothing is
// added to an instance that it does not show. An address that another interface has is forgotten: since it was added, its
// interface has been deleted by another program.
func (r *Recent[I]) Complete(shown map[string]map[string]I, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for id, a := range r.changes {
		if now.After(a.until) {
			delete(r.changes, id)
		}
	}
	if len(r.changes) == 0 {
		return
	}
	owners := map[string]string{} // interfaces of addresses
	for _, all := range shown {
		for id, i := range all {
			for _, address := range held(i) {
				owners[address] = id
			}
		}
	}
	for id, a := range r.changes {
		a.remove(func(one string) bool { return owners[one] != "" && owners[one] != id })
		a.show(id, shown)
	}
	for _, all := range shown {
		for id, i := range all {
			if a := r.changes[id]; a != nil {
				all[id] = a.complete(i, func(address string) bool { return owners[address] != "" })
			}
		}
	}
}

// show adds a new interface to its instance.
func (a *addition[I]) show(id string, shown map[string]map[string]I) {
	if !a.isNew {
		return
	}
	_, instance := a.created.Key()
	if _, isShown := shown[instance][id]; shown[instance] != nil && !isShown {
		_, addresses, prefixes := a.created.Holds()
		shown[instance][id] = a.created.With(addresses, prefixes)
	}
}

// complete is an interface with what was added to it.
func (a *addition[I]) complete(i I, isOwned func(string) bool) I {
	_, addresses, prefixes := i.Holds()
	moreAddresses, morePrefixes := a.addresses, a.prefixes
	if a.isNew {
		_, ofNew, prefixesOfNew := a.created.Holds()
		moreAddresses, morePrefixes = slices.Concat(moreAddresses, ofNew), slices.Concat(morePrefixes, prefixesOfNew)
	}
	moreAddresses, morePrefixes = slices.DeleteFunc(slices.Clone(moreAddresses), isOwned), slices.DeleteFunc(slices.Clone(morePrefixes), isOwned)
	if len(moreAddresses)+len(morePrefixes) == 0 {
		return i
	}
	return i.With(slices.Concat(addresses, moreAddresses), slices.Concat(prefixes, morePrefixes))
}
