// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package cloudipam_test

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	v2 "github.com/skep-operator/skep/resources/api/v2"
	"github.com/skep-operator/skep/resources/cloudipam"
	"github.com/skep-operator/skep/resources/cloudipam/cloudtest"
)

// pooled is a calm world whose agent has the protocol of pools and requests addresses, 40 of which an interface can have.
func pooled(t *testing.T, request int, edit func(*world)) *world {
	w := calm(t, 8, func(w *world) {
		w.agents["n0"].pools = true
		w.request(request)
		if edit != nil {
			edit(w)
		}
	})
	w.leader.op.SetDelay(180)
	w.settle(t)
	return w
}

// prefixes is a cloud with prefixes of 16 addresses.
func prefixes(perInterface int) func(*world) {
	return func(w *world) {
		w.cloud = cloudtest.NewCloud("10.1.0.0/24")
		w.cloud.PrefixBits, w.cloud.PerInterface = 28, perInterface
		w.cloud.Run("i-n0")
	}
}

// request has the agent request a number of addresses.
func (w *world) request(count int) {
	n := w.nodes["n0"].DeepCopy()
	n.Spec.IPAM.Pools.Requested = []v2.IPAMPoolRequest{{Pool: "default", Needed: v2.IPAMPoolDemand{IPv4Addrs: count}}}
	w.stored(n)
}

// list has the agent list CIDRs.
func (w *world) list(cidrs ...string) {
	n := w.nodes["n0"].DeepCopy()
	n.Spec.IPAM.Pools.Allocated = []v2.IPAMPoolAllocation{{Pool: "default", CIDRs: cidrs, AllowFirstIP: true, AllowLastIP: true}}
	w.stored(n)
}

// settle processes the node until nothing changes.
func (w *world) settle(t *testing.T) {
	t.Helper()
	for range 10 {
		_ = w.process() // pauses are errors
		_ = w.reread(t)
	}
}

// after lets time pass, and settles.
func (w *world) after(t *testing.T, d time.Duration) {
	t.Helper()
	w.now = w.now.Add(d)
	w.settle(t)
}

// attached are the addresses that the cloud has of the node, and those that the node shows to its agent.
func (w *world) attached() (cloud, status, pool int) {
	n := w.nodes["n0"]
	for _, of := range n.Status.ENI.ENIs {
		status += len(of.Addresses)
	}
	return len(w.cloud.Owners()), status, len(n.Spec.IPAM.Pool)
}

func (w *world) wantAttached(t *testing.T, what string, want int) {
	t.Helper()
	if cloud, status, pool := w.attached(); cloud != want || status != want || pool != want {
		t.Errorf("%s: the cloud has %d, the status %d, the pool %d: want %d", what, cloud, status, pool, want)
	}
}

// CIPAM-37 and CIPAM-38; numbers 37, 38, 45 and 46 of the contract's ipam-cloud.md: agents of 1.20 get what they request, and their list
// is theirs.
func TestAgentsWithPoolsAreServed(t *testing.T) {
	w := pooled(t, 8, nil)
	w.wantAttached(t, "8 requested", 8)
	if n := w.nodes["n0"]; len(n.Spec.IPAM.Pools.Allocated) != 0 || len(n.Status.IPAM.Used) != 0 {
		t.Errorf("%+v, %+v", n.Spec.IPAM.Pools, n.Status.IPAM.Used)
	}
	backwards := shown(w.nodes["n0"])
	slices.Reverse(backwards)
	w.list(backwards...)
	want := w.nodes["n0"].DeepCopy().Spec.IPAM.Pools
	w.request(38)
	w.settle(t)
	w.wantAttached(t, "30 pods", 38)
	if got := w.nodes["n0"].Spec.IPAM.Pools; fmt.Sprint(got.Allocated) != fmt.Sprint(want.Allocated) {
		t.Errorf("the list of the agent is %v, and was %v", got.Allocated, want.Allocated)
	}
	w = pooled(t, 0, nil)
	w.wantAttached(t, "0 requested", 8)
}

// CIPAM-40; number 39 of the contract's ipam-cloud.md: what the agent does not list is there for its next demand.
func TestUnlistedAddressesAreUsedAgain(t *testing.T) {
	w := pooled(t, 20, nil)
	w.leader.op.KeepExcess()
	all := shown(w.nodes["n0"])
	w.request(10)
	w.list(all[:10]...)
	w.after(t, time.Hour)
	w.wantAttached(t, "without release", 20)
	w.request(18)
	w.after(t, time.Hour)
	w.wantAttached(t, "with demand", 20)
	if calls := w.cloud.Calls(); calls[cloudtest.OpAssign] != 1 || calls[cloudtest.OpUnassign] != 0 {
		t.Errorf("%v", calls)
	}
}

// CIPAM-39; numbers 40 and 43 of the contract's ipam-cloud.md: an address leaves when the list has lacked it for the delay, also over a
// restart of the operator; the agent does not see it before.
func TestUnlistedAddressesAreUnassignedAfterTheDelay(t *testing.T) {
	w := pooled(t, 10, nil)
	all := shown(w.nodes["n0"])
	w.list(all...)
	w.request(8)
	w.settle(t)
	w.list(all[1:]...)
	w.settle(t)
	w.after(t, 170*time.Second)
	w.list(all...) // back
	w.after(t, 30*time.Second)
	w.list(all[1:]...)
	w.settle(t)
	w.after(t, 179*time.Second)
	w.wantAttached(t, "before the delay", 10)
	w.after(t, time.Second)
	if cloud, status, pool := w.attached(); cloud != 10 || status != 9 || pool != 9 {
		t.Errorf("after the delay: the cloud has %d, the status %d, the pool %d", cloud, status, pool)
	}
	w.after(t, cloudipam.ReturnDelay)
	w.wantAttached(t, "hidden for long enough", 9)

	w.list(all[2:]...)
	w.lead()
	w.leader.op.SetDelay(180)
	w.settle(t)
	w.after(t, 179*time.Second)
	w.wantAttached(t, "before the delay of another term", 9)
	w.after(t, time.Second)
	w.after(t, cloudipam.ReturnDelay)
	w.wantAttached(t, "after the delay of another term", 8)
	if calls := w.cloud.Calls(); calls[cloudtest.OpUnassign] != 2 {
		t.Errorf("%v", calls)
	}
}

// CIPAM-39: an address that is listed again while it is hidden stays.
func TestListedAgainAtTheLastMoment(t *testing.T) {
	w := pooled(t, 10, nil)
	all := shown(w.nodes["n0"])
	w.request(8)
	w.list(all[1:]...)
	w.settle(t)
	w.after(t, 180*time.Second)
	if _, status, _ := w.attached(); status != 9 {
		t.Fatalf("the status has %d", status)
	}
	stale := w.nodes["n0"]
	w.list(all...)
	w.now = w.now.Add(cloudipam.ReturnDelay)
	if err := w.leader.op.Show(stale); err != nil { // the cache is late
		t.Fatal(err)
	}
	_ = w.leader.op.Reconcile(w.ctx, "n0")
	w.settle(t)
	w.wantAttached(t, "listed again", 10)
}

// CIPAM-40: what the agent lists while it is hidden is shown again, also while the cloud cannot be read.
func TestListedAgainWhileTheCloudIsAway(t *testing.T) {
	w := pooled(t, 10, nil)
	all := shown(w.nodes["n0"])
	w.request(8)
	w.list(all[1:]...)
	w.settle(t)
	w.after(t, 180*time.Second)
	w.cloud.Fault = func(string) cloudtest.Fault { return cloudtest.Fault{Refuse: errors.New("503")} }
	_ = w.leader.op.ReadAll(w.ctx)
	w.list(all...)
	_ = w.process()
	w.cloud.Fault = nil
	w.wantAttached(t, "listed again", 10)
}

// CIPAM-39: what the agent has requested, and min-allocate, stay, whatever its list lacks; an agent without a list has not begun.
func TestWhatIsRequestedStays(t *testing.T) {
	w := pooled(t, 10, nil)
	all := shown(w.nodes["n0"])
	w.after(t, time.Hour)
	w.after(t, time.Hour)
	w.wantAttached(t, "without a list", 10)
	w.list(all[:1]...)
	w.after(t, time.Hour)
	w.after(t, time.Hour)
	w.wantAttached(t, "10 are requested", 10)
	w.nodes["n0"].Spec.IPAM.MinAllocate = 9
	w.request(0)
	for range 3 {
		w.after(t, time.Hour)
	}
	w.wantAttached(t, "min-allocate is 9", 9)
}

// CIPAM-39 and CIPAM-48; numbers 41 and 42 of the contract's ipam-cloud.md: prefixes go as a whole, one call for each interface.
func TestUnlistedPrefixesAreUnassigned(t *testing.T) {
	w := pooled(t, 48, prefixes(32))
	w.wantAttached(t, "three prefixes", 48)
	all := shown(w.nodes["n0"])
	if len(all) != 3 {
		t.Fatalf("%v", all)
	}
	w.request(16)
	w.list(all[0])
	for range 3 {
		w.after(t, time.Hour)
	}
	w.wantAttached(t, "two are not listed", 16)
	if calls := w.cloud.Calls(); calls[cloudtest.OpUnassign] != 2 {
		t.Errorf("%v", calls)
	}
}

// CIPAM-48; number 48 of the contract's ipam-cloud.md: agents up to 1.19 are asked for each address of an unused prefix.
func TestPrefixesAreReleasedByHandshake(t *testing.T) {
	w := calm(t, 40, prefixes(48))
	w.settle(t)
	n := w.nodes["n0"]
	if len(n.Spec.IPAM.Pool) != 48 {
		t.Fatalf("%d", len(n.Spec.IPAM.Pool))
	}
	n.Spec.IPAM.PreAllocate = 8
	for _, a := range slices.Sorted(maps.Keys(n.Spec.IPAM.Pool))[:5] {
		w.agents["n0"].inUse[a] = true
	}
	w.agents["n0"].sync()
	w.agents["n0"].report()
	w.after(t, time.Minute)
	if marks := w.nodes["n0"].Status.IPAM.ReleaseIPs; len(marks) != 32 {
		t.Errorf("%d are marked: want those of two prefixes", len(marks))
	}
	w.agents["n0"].sync()
	w.agents["n0"].report()
	w.after(t, time.Minute)
	if cloud, _, pool := w.attached(); cloud != 16 || pool != 16 || w.cloud.Calls()[cloudtest.OpUnassign] != 1 {
		t.Errorf("the cloud has %d, the pool %d: %v", cloud, pool, w.cloud.Calls())
	}
}

// CIPAM-37; number 44 of the contract's ipam-cloud.md: a downgrade of the agent has the handshake, an upgrade has pools again.
func TestAgentIsDowngraded(t *testing.T) {
	w := pooled(t, 38, nil)
	all := shown(w.nodes["n0"])
	w.list(all[:2]...)
	n := w.nodes["n0"].DeepCopy()
	n.Status.IPAM.Used = map[string]v2.AllocationIP{strings.TrimSuffix(all[0], "/32"): {}, strings.TrimSuffix(all[1], "/32"): {}}
	w.stored(n)
	w.settle(t)
	w.after(t, 180*time.Second)
	if marks := w.nodes["n0"].Status.IPAM.ReleaseIPs; len(marks) != 28 {
		t.Errorf("%d of 38 are marked, with 2 in use and 8 ahead", len(marks))
	}
	w.wantAttached(t, "before an answer", 38)
	n = w.nodes["n0"].DeepCopy()
	n.Status.IPAM.Used = map[string]v2.AllocationIP{}
	w.stored(n)
	w.settle(t)
	if marks := w.nodes["n0"].Status.IPAM.ReleaseIPs; len(marks) != 0 {
		t.Errorf("%v are marked for an agent with pools", marks)
	}
	w.wantAttached(t, "with pools again", 38)
}

// CIPAM-47; number 47 of the contract's ipam-cloud.md: a public address is assigned without a deficit, and its failure is none of the
// others'.
func TestStaticIP(t *testing.T) {
	w := calm(t, 8, nil)
	w.settle(t)
	w.nodes["n0"].Spec.IPAM.StaticIPTags = map[string]string{"pool": "eip"}
	w.stored(w.nodes["n0"])
	_ = w.process()
	status := w.nodes["n0"].Status.IPAM
	if status.AssignedStaticIP != "" || !strings.Contains(status.OperatorStatus.Error, "no free public address has the tags map[pool:eip]") {
		t.Errorf("%+v", status)
	}
	w.nodes["n0"].Spec.IPAM.MinAllocate = 10
	w.stored(w.nodes["n0"])
	w.settle(t)
	w.wantAttached(t, "while none is free", 10)
	w.cloud.Public = map[string]map[string]string{"203.0.113.6": {"pool": "other"}, "203.0.113.7": {"pool": "eip"}, "203.0.113.8": {"pool": "eip"}}
	w.after(t, time.Hour)
	status = w.nodes["n0"].Status.IPAM
	if status.AssignedStaticIP != "203.0.113.7" || status.OperatorStatus.Error != "" || len(w.cloud.Public) != 2 {
		t.Errorf("%+v, free: %v", status, w.cloud.Public)
	}
	w.nodes["n0"].Spec.IPAM.StaticIPTags = nil
	w.stored(w.nodes["n0"])
	w.lead()
	w.after(t, time.Hour)
	if got := w.nodes["n0"].Status.IPAM.AssignedStaticIP; got != "203.0.113.7" {
		t.Errorf("%q without tags", got)
	}
	n := w.nodes["n0"].DeepCopy()
	n.Spec.IPAM.StaticIPTags, n.Status.IPAM.AssignedStaticIP = map[string]string{"pool": "eip"}, "/subscriptions/x/publicIPPrefixes/p"
	w.stored(n)
	w.lead()
	w.after(t, time.Hour)
	if got := w.nodes["n0"].Status.IPAM.AssignedStaticIP; got != "203.0.113.7" || len(w.cloud.Public) != 2 {
		t.Errorf("%q in place of what is no address, free: %v", got, w.cloud.Public)
	}
}
