// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package multipool

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/skep-operator/skep/resources/operatortest"
	"github.com/skep-operator/skep/runtime/seedtest"
)

// migrating are the arguments of the migration.
const migrating = "--enable-cluster-pool-to-multi-pool-migration"

// createWithPodCIDRs makes a node as the IPAM mode cluster-pool leaves it.
func (s *server) createWithPodCIDRs(name string, cidrs ...string) {
	s.t.Helper()
	u := has(name).object()
	_ = unstructured.SetNestedStringSlice(u.Object, cidrs, "spec", "ipam", "podCIDRs")
	if _, err := s.nodes.Create(s.t.Context(), u, metav1.CreateOptions{}); err != nil {
		s.t.Fatal(err)
	}
}

func (s *server) podCIDRs(name string) []string {
	s.t.Helper()
	list, _, _ := unstructured.NestedStringSlice(s.get(name).Object, "spec", "ipam", "podCIDRs")
	return list
}

// Number 37 of the contract's ipam-multi-pool.md: without the option podCIDRs stay, and nothing of them is allocated.
func TestServerPodCIDRsAreTaken(t *testing.T) {
	s := newServer(t)
	s.createPool("default", "10.40.0.0/16 mask 24", "fd00::/104 mask 112")
	s.create(has("c").needs("default: 10 10"))
	s.createWithPodCIDRs("a", "10.40.0.0/24")
	s.createWithPodCIDRs("b", "10.40.1.0/24", "fd00::1:0/112")
	o := s.start()
	s.want("c", "default: 10.40.2.0/24 fd00::/112")
	s.want("a")
	if a, b := s.podCIDRs("a"), s.podCIDRs("b"); !slices.Equal(a, []string{"10.40.0.0/24"}) || len(b) != 2 {
		t.Errorf("a has %v, b has %v", a, b)
	}
	o.Log().Wait(t, "CiliumNodes have pod CIDRs of another IPAM mode")
	s.createWithPodCIDRs("late", "10.40.4.0/23")
	operatortest.Eventually(t, "late is seen", func() bool { return o.Metric("ipam_pool_blocks", "IPv4", "default", "used") == 5 })
	s.setRequested("c", "default: 600 10")
	s.want("c", "default: 10.40.2.0/24 10.40.3.0/24 10.40.6.0/24 fd00::/112")
}

// Numbers 36 and 39 of the contract's ipam-multi-pool.md, and back (POOL-39 is the other way).
func TestServerMigratesFromClusterPool(t *testing.T) {
	for name, mask := range map[string]string{"the same mask": "24", "another mask": "25"} {
		t.Run(name, func(t *testing.T) {
			s := newServer(t)
			s.createPool("default", "10.40.0.0/16 mask "+mask, "fd00::/104 mask 112")
			s.create(has("c").needs("default: 10 10"))
			s.createWithPodCIDRs("a", "10.40.0.0/24")
			s.createWithPodCIDRs("b", "10.40.1.0/24", "fd00::1:0/112")
			s.createWithPodCIDRs("twin", "10.40.1.0/24")
			s.start(migrating)
			s.want("a", "default: 10.40.0.0/24")
			s.want("b", "default: 10.40.1.0/24 fd00::1:0/112")
			s.want("c", "default: 10.40.2.0/"+mask+" fd00::/112")
			s.wantError("twin", "cidr 10.40.1.0/24, which is shown outside of spec.ipam.pools, overlaps 10.40.1.0/24 of the older CiliumNode b\n"+
				"migration to multi-pool IPAM failed: CIDR 10.40.1.0/24 has already been allocated to the older CiliumNode b")
			if a, b, twin := s.podCIDRs("a"), s.podCIDRs("b"), s.podCIDRs("twin"); len(a)+len(b) != 0 || len(twin) != 1 {
				t.Errorf("podCIDRs: %v, %v, %v", a, b, twin)
			}
			all, _ := s.updates(0)
			if i := slices.Index(all, "update c: 200"); !slices.Contains(all[:i], "update a: 200") || !slices.Contains(all[:i], "update b: 200") {
				t.Errorf("c is written before a or b: %q", all)
			}
		})
	}
}

// MPOOL-43: a migration that is interrupted at any point, also by the way back to no migration, never gives a block twice, and
// keeps every block with its node; in the end each node has its own.
func TestServerMigrationIsInterrupted(t *testing.T) {
	s := newServer(t)
	count := 60
	if seedtest.Soak() {
		count = 2000
	}
	s.createPool("default", "10.40.0.0/16 mask 28", "")
	of := map[string]string{}
	for i := range count {
		name := fmt.Sprintf("n%04d", i)
		of[name] = fmt.Sprintf("10.40.%d.%d/28", i>>4, i&15<<4)
		s.createWithPodCIDRs(name, of[name])
	}
	check := func() (left int) {
		t.Helper()
		list, err := s.nodes.List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		owner := map[netip.Prefix]string{}
		for i := range list.Items {
			u := &list.Items[i]
			cidrs, _, _ := unstructured.NestedStringSlice(u.Object, "spec", "ipam", "podCIDRs")
			left += len(cidrs)
			pools, _ := allocatedIn(u)
			for _, c := range append(prefixesOf(pools), prefixesOf(allocations([]string{"x: " + strings.Join(cidrs, " ")}))...) {
				if owner[c] != "" {
					t.Errorf("%s is of %s and %s", c, owner[c], u.GetName())
				}
				owner[c] = u.GetName()
			}
		}
		for name, c := range of {
			if owner[netip.MustParsePrefix(c)] != name {
				t.Errorf("%s has lost %s", name, c)
			}
		}
		return left
	}
	for round := range 4 {
		args := []string{migrating, "--multi-pool-migration-workers=2"}
		if round == 2 {
			args = nil
		}
		o := operatortest.Start(t, Cell, s.proxy.Kubeconfig(), append([]string{ours}, args...)...)
		s.create(has(fmt.Sprint("new-", round)).needs("default: 5"))
		operatortest.Eventually(t, "it is somewhere in between", func() bool {
			all, _ := s.updates(0)
			return len(all) >= 7*(round+1) || args == nil
		})
		o.Stop()
		check()
	}
	s.start(migrating)
	for round := range 4 {
		operatortest.Eventually(t, "new nodes are served", func() bool {
			has, _ := textsOf(s.get(fmt.Sprint("new-", round)))
			return len(has) == 1
		})
	}
	if left := check(); left > 0 {
		t.Errorf("%d podCIDRs are left", left)
	}
}

// Number 38 of the contract's ipam-multi-pool.md; MPOOL-42: an agent writes twice while its node is converted. It is converted all the same,
// and has what the agent wrote.
func TestServerMigrationKeepsWhatTheAgentWrote(t *testing.T) {
	s := newServer(t)
	s.createPool("default", "10.40.0.0/16 mask 24", "fd00::/104 mask 112")
	s.createWithPodCIDRs("b", "10.40.1.0/24", "fd00::1:0/112")
	rule := s.hold()
	operatortest.Start(t, Cell, s.proxy.Kubeconfig(), ours, migrating)
	for round := range 2 {
		operatortest.Eventually(t, "the write is held", func() bool { return rule.Hits(t) > 0 })
		edit(s, s.nodes, "b", func(u *unstructured.Unstructured) {
			address := map[string]any{"type": "InternalIP", "ip": fmt.Sprint("192.0.2.", 7+round)}
			_ = unstructured.SetNestedSlice(u.Object, []any{address}, "spec", "addresses")
		})
		held := rule
		if round == 0 {
			rule = s.hold() // the next attempt, too
		}
		held.Remove(t)
	}
	s.want("b", "default: 10.40.1.0/24 fd00::1:0/112")
	addresses, _, _ := unstructured.NestedSlice(s.get("b").Object, "spec", "addresses")
	if len(addresses) != 1 || addresses[0].(map[string]any)["ip"] != "192.0.2.8" || len(s.podCIDRs("b")) > 0 {
		t.Errorf("addresses are %v, podCIDRs %v", addresses, s.podCIDRs("b"))
	}
	if all, _ := s.updates(0); !slices.Equal(all, []string{"update b: 409", "update b: 409", "update b: 200"}) {
		t.Errorf("the writes are %q", all)
	}
}
