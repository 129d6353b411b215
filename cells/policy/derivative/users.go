// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package derivative

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/skep-operator/skep/resources/networkpolicy"
	"github.com/skep-operator/skep/resources/stream/slim"
)

// users are the policies that refer to each group. It is safe for concurrent use.
type users struct {
	mu       sync.Mutex
	groups   map[string]networkpolicy.Group // by id
	policies map[string]map[slim.Key]bool   // by id
	of       map[slim.Key][]string          // ids
	unknown  map[slim.Key]bool              // policies of which some rules cannot be decoded
	lanes    lanes
}

func newUsers() *users {
	return &users{
		groups: map[string]networkpolicy.Group{}, policies: map[string]map[slim.Key]bool{}, of: map[slim.Key][]string{}, unknown: map[slim.Key]bool{},
		lanes: newLanes(),
	}
}

// set records the groups of a policy, none of one that is gone. It returns the ids of groups that have other users than before. A
// policy of which not all is known keeps what it had.
func (u *users) set(key slim.Key, groups []networkpolicy.Group, unknown bool) (changed []string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	var ids []string
	for _, g := range groups {
		id := g.ID()
		ids = append(ids, id)
		if u.keep(id, key, g) {
			changed = append(changed, id)
		}
	}
	if delete(u.unknown, key); unknown {
		u.unknown[key] = true
		for _, id := range u.of[key] {
			if !slices.Contains(ids, id) {
				ids = append(ids, id)
			}
		}
	}
	before := u.of[key]
	if delete(u.of, key); len(ids) > 0 {
		u.of[key] = ids
	}
	for _, id := range ids {
		if u.policies[id] == nil {
			u.policies[id] = map[slim.Key]bool{}
		}
		if !u.policies[id][key] {
			u.policies[id][key] = true
			u.lanes.added(id, key)
			changed = append(changed, id)
		}
	}
	for _, id := range before {
		if !slices.Contains(ids, id) {
			u.remove(id, key)
			changed = append(changed, id)
		}
	}
	return changed
}

// keep keeps the group of a policy, and reports whether it had another form. Its text stays if another policy has it, too, and may have it.
func (u *users) keep(id string, key slim.Key, g networkpolicy.Group) (isOther bool) {
	was, known := u.groups[id]
	ofOthers := len(u.policies[id])
	if u.policies[id][key] {
		ofOthers--
	}
	if known && g.IsLarge() && ofOthers > 0 {
		return false
	}
	u.groups[id] = g
	return known && was != g
}

func (u *users) remove(id string, key slim.Key) {
	if !u.policies[id][key] {
		return
	}
	delete(u.policies[id], key)
	u.lanes.removed(id, key, len(u.policies[id]) == 0)
	if len(u.policies[id]) == 0 {
		delete(u.policies, id)
		delete(u.groups, id)
	}
}

// group is the group of an id, and its users in order; wanted is false if there are none. unsure says that a policy that cannot be
// decoded may be one.
func (u *users) group(id string) (g networkpolicy.Group, policies []slim.Key, wanted, unsure bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	g, wanted = u.groups[id]
	policies = slices.SortedFunc(maps.Keys(u.policies[id]), compareKeys)
	return g, policies, wanted, len(u.unknown) > 0
}

// all are the policies with groups, and the ids of all groups.
func (u *users) all() (policies []slim.Key, ids []string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	return slices.Collect(maps.Keys(u.of)), slices.Collect(maps.Keys(u.groups))
}

func compareKeys(a, b slim.Key) int {
	return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name))
}
