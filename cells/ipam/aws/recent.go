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
	r.taken(e.ID, slices.Concat(e.singles, e.Prefixes, []string{e.IP}))
}

// assigned remembers what was assigned to an interface.
func (r *recent) assigned(id string, addresses, prefixes []string, now time.Time) {
	r.update(id, now, func(a *addition) {
		a.addresses = append(a.addresses, addresses...)
		a.prefixes = append(a.prefixes, prefixes...)
	})
	r.taken(id, slices.Concat(addresses, prefixes))
}

// taken forgets what other interfaces had of the addresses and prefixes of one: they have been deleted since.
func (r *recent) taken(by string, these []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for id, a := range r.changes {
		if id != by {
			a.remove(func(one string) bool { return slices.Contains(these, one) })
		}
	}
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
	if a := r.changes[id]; a != nil {
		a.remove(func(one string) bool { return slices.Contains(addresses, one) })
	}
}

// remove takes off addresses and prefixes. An interface is no more without its primary address.
func (a *addition) remove(isGone func(string) bool) {
	without := func(list []string) []string { return slices.DeleteFunc(slices.Clone(list), isGone) }
	a.addresses, a.prefixes = without(a.addresses), without(a.prefixes)
	switch {
	case a.created == nil:
	case isGone(a.created.IP):
		a.created = nil
	default:
		e := *a.created
		e.singles, e.Prefixes = without(e.singles), without(e.Prefixes)
		a.created = &e
	}
}

// complete adds to what EC2 shows of instances what it does not show yet. list puts the addresses of an interface in order.
// Nothing is added to an instance that it does not show. An address that another interface has is forgotten: since it was
// added, its interface has been deleted by another program.
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
		a.remove(func(one string) bool { return owners[one] != "" && owners[one] != id })
		if e := a.created; e != nil && shown[e.instance] != nil && shown[e.instance][id] == nil {
			more := *e
			list(&more)
			shown[e.instance][id] = &more
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
