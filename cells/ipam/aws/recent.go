// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package aws

import (
	"slices"
	"sync"
	"time"
)

// recent are changes that EC2 has confirmed, and may not show yet: it is eventually consistent. Without them an address
// that is not shown would be assigned once more.
type recent struct {
	mu      sync.Mutex
	changes map[string]*addition // by interface
}

// addition is what was added to an interface.
type addition struct {
	created   *eni // the interface itself
	addresses []string
	prefixes  []string
	until     time.Time
}

// recentAge is how long EC2 may not show a change.
const recentAge = 30 * time.Second

// created remembers a new interface.
func (r *recent) created(e *eni, now time.Time) {
	r.update(e.ID, now, func(a *addition) { a.created = e })
}

// assigned remembers what was assigned to an interface.
func (r *recent) assigned(id string, addresses, prefixes []string, now time.Time) {
	r.update(id, now, func(a *addition) {
		a.addresses = append(a.addresses, addresses...)
		a.prefixes = append(a.prefixes, prefixes...)
	})
}

func (r *recent) update(id string, now time.Time, edit func(*addition)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.changes == nil {
		r.changes = map[string]*addition{}
	}
	if r.changes[id] == nil || now.After(r.changes[id].until) {
		r.changes[id] = &addition{}
	}
	edit(r.changes[id])
	r.changes[id].until = now.Add(recentAge)
}

// removed forgets addresses that are unassigned, before they are.
func (r *recent) removed(id string, addresses []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	a := r.changes[id]
	if a == nil {
		return
	}
	isRemoved := func(address string) bool { return slices.Contains(addresses, address) }
	a.addresses = slices.DeleteFunc(a.addresses, isRemoved)
	if a.created != nil {
		e := *a.created
		e.singles = slices.DeleteFunc(slices.Clone(e.singles), isRemoved)
		e.Addresses = slices.DeleteFunc(slices.Clone(e.Addresses), isRemoved)
		a.created = &e
	}
}

// complete adds to what EC2 shows of instances what it does not show yet. list puts the addresses of an interface in order.
// Nothing is added to an instance that it does not show, and no address that another interface has.
func (r *recent) complete(shown map[string]map[string]*eni, list func(*eni), now time.Time) {
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
	for _, enis := range shown {
		for id, e := range enis {
			for _, address := range slices.Concat(e.singles, e.Prefixes, []string{e.IP}) {
				owners[address] = id
			}
		}
	}
	for id, a := range r.changes {
		if e := a.created; e != nil && shown[e.instance] != nil && shown[e.instance][id] == nil && owners[e.IP] == "" {
			shown[e.instance][id] = e
		}
	}
	for _, enis := range shown {
		for id, e := range enis {
			a := r.changes[id]
			if a == nil {
				continue
			}
			isOwned := func(address string) bool { return owners[address] != "" }
			addresses := slices.DeleteFunc(slices.Clone(a.addresses), isOwned)
			prefixes := slices.DeleteFunc(slices.Clone(a.prefixes), isOwned)
			if a.created != nil {
				addresses = append(addresses, slices.DeleteFunc(slices.Clone(a.created.singles), isOwned)...)
				prefixes = append(prefixes, slices.DeleteFunc(slices.Clone(a.created.Prefixes), isOwned)...)
			}
			if len(addresses)+len(prefixes) == 0 {
				continue
			}
			more := *e
			more.singles, more.Prefixes = slices.Concat(e.singles, addresses), slices.Concat(e.Prefixes, prefixes)
			list(&more)
			enis[id] = &more
		}
	}
}
