// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package derivative

import (
	"cmp"
	"strings"

	"github.com/skep-operator/skep/resources/stream/slim"
)

// lanes are the namespaces with whose keys those of groups have their turns. The lock is that of the users.
type lanes struct {
	load   map[string]int    // how many groups the policies of a namespace have, counted for each policy
	former map[string]string // by id of a group that no policy has any more: the namespace of the last one
	queued map[string]string // by id of a group that waits, or that a worker has
}

func newLanes() lanes {
	return lanes{load: map[string]int{}, former: map[string]string{}, queued: map[string]string{}}
}

// added is called when a policy has a group, removed when it has it no more.
func (l *lanes) added(id string, policy slim.Key) {
	l.load[policy.Namespace]++
	delete(l.former, id)
}

func (l *lanes) removed(id string, policy slim.Key, isLast bool) {
	if l.load[policy.Namespace]--; l.load[policy.Namespace] == 0 {
		delete(l.load, policy.Namespace)
	}
	if isLast {
		l.former[id] = policy.Namespace
	}
}

// lane is the namespace with whose keys that of a group has its turns: of those whose policies have the group, the one that has the fewest
// groups. So a namespace with thousands of them draws no group of another into its own lane by a reference to it. Groups of clusterwide
// policies alone have a lane of their own.
//
// A queue calls it when the key comes, and once more when the key is done. The second call returns what the first one did, whatever users
// there are by then.
func (u *users) lane(id string) string {
	u.mu.Lock()
	defer u.mu.Unlock()
	if lane, queued := u.lanes.queued[id]; queued {
		delete(u.lanes.queued, id)
		return lane
	}
	lane, found := u.lanes.former[id], false
	for policy := range u.policies[id] {
		other := policy.Namespace
		if !found || cmp.Or(cmp.Compare(u.lanes.load[other], u.lanes.load[lane]), strings.Compare(other, lane)) < 0 {
			lane, found = other, true
		}
	}
	lane = cmp.Or(lane, groupNamespace)
	u.lanes.queued[id] = lane
	return lane
}

// forget is called for a group that has neither policies nor a CIDR group.
func (u *users) forget(id string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	delete(u.lanes.former, id)
}

// namespaceOf is the namespace with whose keys a key has its turns.
func (c *controller) namespaceOf(key slim.Key) string {
	if key.Namespace != groupNamespace || key == leftovers {
		return key.Namespace
	}
	return c.users.lane(key.Name)
}
