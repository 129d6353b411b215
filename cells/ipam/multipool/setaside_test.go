// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package multipool

import (
	"errors"
	"slices"
	"testing"

	"github.com/skep-operator/skep/resources/stream/ciliumio"
)

// K8S-20: what a node lists that is set aside is given to no other node, and the others get theirs.
func TestANodeThatIsSetAsideKeepsWhatItLists(t *testing.T) {
	s := newStory(t)
	s.pool("p", "10.0.0.0/22 mask 24", "")
	bad, idle := &ciliumio.Node{}, &ciliumio.Node{}
	bad.Name, idle.Name = "bad", "idle"
	bad.Spec.IPAM.Pools.Allocated = []ciliumio.PoolAllocation{{Pool: "p", CIDRs: []string{"10.0.0.0/24"}}}
	why := errors.New("handling CiliumNode bad panicked")
	s.alloc.upsert(newSetAside(bad, why))
	s.alloc.upsert(newSetAside(idle, why))
	s.alloc.markSynced()
	s.node(testNode{name: "good", requested: []string{"p:200 0"}})
	if got := s.nodes["good"].Allocated; len(got) != 1 || !slices.Equal(got[0].CIDRs, []string{"10.0.1.0/24"}) {
		t.Errorf("the other node has %v", got)
	}
	if d := s.alloc.nodes["bad"].desired; !d.keep {
		t.Errorf("the node is to have %+v", d)
	}
}
