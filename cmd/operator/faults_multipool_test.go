// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package main

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/util/retry"

	v2 "github.com/skep-operator/skep/resources/api/v2"
	"github.com/skep-operator/skep/resources/api/v2alpha1"
	"github.com/skep-operator/skep/runtime/seedtest"
)

// The faults of TestFaultsOfTheAPIServerUnderChurn, in the IPAM mode multi-pool: agents request and release CIDRs, and pools are
// created, edited and deleted. No CIDR is ever on two nodes, and none is taken from a node that has not released it. In the
// long form answers lie, too.
func TestInvariant4MultiPoolUnderFaults(t *testing.T) {
	harms, length := []harm{failing}, 450
	if seedtest.Soak() {
		harms, length = append(harms, spoiling), manyActs
	}
	for _, harm := range harms {
		t.Run(harm.name, func(t *testing.T) {
			newTurmoilOf(t, seedtest.Seed(t), gatherings[0], harm, []func(*turmoil) underFaults{multiPoolUnderFaults}).endure(length)
		})
	}
}

// poolsUnderFaults are the nodes and the pools of a cluster in the mode multi-pool.
type poolsUnderFaults struct {
	*turmoil
	names  []string
	terms  int // that have ended
	odd    []string
	blamed map[string]int // nodes, how often

	mu    sync.Mutex
	lists map[string][]netip.Prefix // of nodes, as of the last event
	had   map[netip.Prefix]bool     // CIDRs that a node had
	hands map[string]bool           // resourceVersions that an agent wrote
	count struct{ given, again, released int }
}

const (
	steadyPool, passingPool = "steady", "passing"
	mostPoolNodes           = 10
	mostNeeded              = 40 // three blocks of fourteen
)

// steadyCIDRs are those of the pool that always has enough: the first one stays.
var steadyCIDRs = []string{"10.60.0.0/22", "10.61.0.0/26"}

// oddPools are specs of which nothing is allocated.
var oddPools = []string{
	`{"ipv4":{"cidrs":["10.66.0.0/24"],"maskSize":20}}`, `{"ipv4":{"cidrs":["0.0.0.0/0"],"maskSize":28}}`,
	`{"ipv4":{"cidrs":["10.60.0.0/16"],"maskSize":28}}`, `{"ipv6":{"cidrs":["10.67.0.0/24"],"maskSize":112}}`,
	`{"ipv4":{"cidrs":["10.68.0.0/24","10.68.0.0/25"],"maskSize":28}}`,
}

func multiPoolUnderFaults(f *turmoil) underFaults {
	p := &poolsUnderFaults{turmoil: f, blamed: map[string]int{}, lists: map[string][]netip.Prefix{}, had: map[netip.Prefix]bool{}, hands: map[string]bool{}}
	f.define("CiliumPodIPPool")
	p.setPool(steadyPool, poolSpec(steadyCIDRs[0]))
	f.follows(v2.CiliumNodeResource)
	f.witness(v2.CiliumNodeResource, p.see)
	f.serveNewNode = func() (name string) {
		name = p.makeServed(10)
		eventually(f.t, "a new node is served", func() bool { return p.restOf(f.nodes()[name]) == nil })
		return name
	}
	return underFaults{
		name: "CIDRs of pools",
		args: []string{"--ipam=multi-pool", "--enable-ipv6=false"},
		churn: []func(){
			p.come, p.come, p.leave, p.request, p.request, p.request, p.release, p.release, p.release, p.lookAt, p.blame, p.editSteady, p.editPassing,
			p.dropPassing, p.makeOdd,
		},
		newTerm: func() { p.terms++; p.come(); p.request(); p.release(); p.editSteady() },
		last:    p.dropOdd,
		rest:    p.rest,
		missing: p.missing,
		end:     p.end,
	}
}

func poolSpec(cidrs ...string) string {
	return fmt.Sprintf(`{"ipv4":{"cidrs":["%s"],"maskSize":28}}`, strings.Join(cidrs, `","`))
}

// setPool makes a pool, or replaces its spec.
func (p *poolsUnderFaults) setPool(name, spec string) {
	p.t.Helper()
	u := &unstructured.Unstructured{}
	text := fmt.Sprintf(`{"apiVersion":"cilium.io/v2alpha1","kind":"CiliumPodIPPool","metadata":{"name":%q},"spec":%s}`, name, spec)
	err := u.UnmarshalJSON([]byte(text))
	if err == nil {
		_, err = p.dynamic.Resource(v2alpha1.CiliumPodIPPoolResource).Apply(p.t.Context(), name, u, metav1.ApplyOptions{FieldManager: "test", Force: true})
	}
	if err != nil {
		p.t.Error(err)
	}
}

func (p *poolsUnderFaults) dropPool(name string) {
	p.t.Helper()
	err := p.dynamic.Resource(v2alpha1.CiliumPodIPPoolResource).Delete(p.t.Context(), name, metav1.DeleteOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		p.t.Error(err)
	}
}

// editSteady adds a CIDR to the pool, or takes it away while nodes have blocks of it.
func (p *poolsUnderFaults) editSteady() {
	p.setPool(steadyPool, poolSpec(steadyCIDRs[:1+p.r.IntN(2)]...))
}

func (p *poolsUnderFaults) editPassing() {
	p.setPool(passingPool, poolSpec([][]string{{"10.62.0.0/24"}, {"10.62.0.0/24", "10.63.0.0/24"}, {"10.63.0.0/24", "10.62.0.0/24"}}[p.r.IntN(3)]...))
}

func (p *poolsUnderFaults) dropPassing() { p.dropPool(passingPool) }

// makeOdd makes a pool of which nothing can be allocated. While there is one, health says so.
func (p *poolsUnderFaults) makeOdd() {
	i := p.r.IntN(len(oddPools))
	if p.terms > 0 && len(p.odd) < len(oddPools) {
		name := fmt.Sprint("odd-", p.number())
		p.odd = append(p.odd, name)
		p.setPool(name, oddPools[i])
	}
}

func (p *poolsUnderFaults) dropOdd() {
	for _, name := range p.odd {
		p.dropPool(name)
	}
	p.odd = nil
}

// makeServed makes a Node, and a CiliumNode whose agent requests addresses.
func (p *poolsUnderFaults) makeServed(needed int) (name string) {
	p.t.Helper()
	name = p.newNode()
	p.asAgent(name, func(u *unstructured.Unstructured) { setRequest(u, needed, 0) })
	return name
}

func setRequest(u *unstructured.Unstructured, steady, passing int) {
	var all []any
	for pool, n := range map[string]int{steadyPool: steady, passingPool: passing} {
		if n > 0 {
			all = append(all, map[string]any{"pool": pool, "needed": map[string]any{"ipv4-addrs": int64(n)}})
		}
	}
	_ = unstructured.SetNestedSlice(u.Object, all, "spec", "ipam", "pools", "requested")
}

// asAgent edits a node as its agent does.
func (p *poolsUnderFaults) asAgent(name string, edit func(*unstructured.Unstructured)) {
	p.t.Helper()
	client := p.dynamic.Resource(v2.CiliumNodeResource)
	err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		u, err := client.Get(p.t.Context(), name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		edit(u)
		p.mu.Lock() // before the event is judged
		defer p.mu.Unlock()
		made, err := client.Update(p.t.Context(), u, metav1.UpdateOptions{})
		if err == nil {
			p.hands[made.GetResourceVersion()] = true
		}
		return err
	})
	if err != nil && !apierrors.IsConflict(err) {
		p.t.Error(err)
	}
}

func (p *poolsUnderFaults) come() {
	needed := 1 + p.r.IntN(mostNeeded)
	if len(p.names) < mostPoolNodes {
		p.names = append(p.names, p.makeServed(needed))
	}
}

func (p *poolsUnderFaults) leave() {
	i, ok := one(p.r, p.names)
	if !ok || len(p.names) < mostPoolNodes/2 {
		return
	}
	name := p.names[i]
	p.names = slices.Delete(p.names, i, i+1)
	p.condemn(p.nodes()[name].GetUID(), "CiliumNode "+name+", whose Node is gone,")
	if err := p.core.CoreV1().Nodes().Delete(p.t.Context(), name, metav1.DeleteOptions{}); err != nil {
		p.t.Fatal(err)
	}
	p.deleteNodes(name)
}

func (p *poolsUnderFaults) request() {
	steady, passing := 1+p.r.IntN(mostNeeded), p.r.IntN(3)*10
	if i, ok := one(p.r, p.names); ok {
		p.asAgent(p.names[i], func(u *unstructured.Unstructured) { setRequest(u, steady, passing) })
	}
}

// release takes a CIDR off the list of a node, as an agent does that does not need it.
func (p *poolsUnderFaults) release() {
	i, ok := one(p.r, p.names)
	if !ok {
		return
	}
	p.asAgent(p.names[i], func(u *unstructured.Unstructured) {
		all, _, _ := unstructured.NestedSlice(u.Object, "spec", "ipam", "pools", "allocated")
		if len(all) == 0 {
			return
		}
		entry := all[p.number()%len(all)].(map[string]any)
		if cidrs, _ := entry["cidrs"].([]any); len(cidrs) > 0 {
			entry["cidrs"] = cidrs[1:]
			p.count.released++
		}
		_ = unstructured.SetNestedSlice(u.Object, all, "spec", "ipam", "pools", "allocated")
	})
}

// lookAt changes what is none of the operator's business.
func (p *poolsUnderFaults) lookAt() {
	if i, ok := one(p.r, p.names); ok {
		p.patchIfThere(v2.CiliumNodeResource, "", p.names[i], fmt.Sprintf(`{"metadata":{"annotations":{"example.com/seen":"%d"}}}`, p.number()))
	}
}

// blame has another writer set the error of a node, twice at most: more would be contention (K8S-9), and degrade the operator.
func (p *poolsUnderFaults) blame() {
	if i, ok := one(p.r, p.names); ok && p.blamed[p.names[i]] < 2 {
		p.blamed[p.names[i]]++
		p.patchIfThere(v2.CiliumNodeResource, "", p.names[i], `{"status":{"ipam":{"operator-status":{"error":"said by hand"}}}}`, "status")
	}
}

// poolLists are the CIDRs of a node by pool.
func poolLists(u *unstructured.Unstructured) map[string][]netip.Prefix {
	lists := map[string][]netip.Prefix{}
	all, _, _ := unstructured.NestedSlice(u.Object, "spec", "ipam", "pools", "allocated")
	for _, a := range all {
		entry, _ := a.(map[string]any)
		pool, _ := entry["pool"].(string)
		cidrs, _ := entry["cidrs"].([]any)
		for _, c := range cidrs {
			lists[pool] = append(lists[pool], netip.MustParsePrefix(fmt.Sprint(c)))
		}
	}
	return lists
}

// see judges each state of each node, and knows nothing of pools: no CIDR is on two nodes, and none is taken that the agent has
// not released.
func (p *poolsUnderFaults) see(kind watch.EventType, u *unstructured.Unstructured) {
	p.mu.Lock()
	defer p.mu.Unlock()
	name := u.GetName()
	if kind == watch.Deleted {
		delete(p.lists, name)
		return
	}
	var now []netip.Prefix
	for _, list := range poolLists(u) {
		now = append(now, list...)
	}
	before := p.lists[name]
	p.lists[name] = now
	for _, c := range before {
		if !slices.Contains(now, c) && !p.hands[u.GetResourceVersion()] {
			p.t.Errorf("revision %s: node %s has lost %s, which its agent did not release", u.GetResourceVersion(), name, c)
		}
	}
	for _, c := range now {
		if slices.Contains(before, c) {
			continue
		}
		if p.count.given++; p.had[c] {
			p.count.again++
		}
		p.had[c] = true
		for other, list := range p.lists {
			if other != name && slices.ContainsFunc(list, c.Overlaps) {
				p.t.Errorf("revision %s: node %s is given %s, and node %s has %v", u.GetResourceVersion(), name, c, other, list)
			}
		}
	}
}

// rest: each node has the addresses that its agent requests, or an error where there is no such pool.
func (p *poolsUnderFaults) rest() error {
	var errs []error
	for _, u := range p.nodes() {
		if err := p.restOf(u); err != nil {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

func (p *poolsUnderFaults) restOf(u *unstructured.Unstructured) error {
	_, err := p.dynamic.Resource(v2alpha1.CiliumPodIPPoolResource).Get(p.t.Context(), passingPool, metav1.GetOptions{})
	passes := err == nil
	lists, fails := poolLists(u), false
	requested, _, _ := unstructured.NestedSlice(u.Object, "spec", "ipam", "pools", "requested")
	for _, r := range requested {
		request := r.(map[string]any)
		needed, _, _ := unstructured.NestedInt64(request, "needed", "ipv4-addrs")
		pool := fmt.Sprint(request["pool"])
		for _, c := range lists[pool] {
			needed -= 1<<(32-c.Bits()) - 2
		}
		if needed <= 0 {
			continue
		}
		if pool == steadyPool || passes {
			return fmt.Errorf("node %s lacks %d addresses of pool %s, and has %v", u.GetName(), needed, pool, lists)
		}
		fails = true
	}
	if text := nodeError(u); text != "" != fails && len(lists[passingPool]) == 0 {
		return fmt.Errorf("node %s says %q, and something is missing: %t", u.GetName(), text, fails)
	}
	return nil
}

func (p *poolsUnderFaults) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.t.Logf("%d CIDRs were allocated, %d of them again, %d released", p.count.given, p.count.again, p.count.released)
}

func (p *poolsUnderFaults) missing() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.count.again == 0 || p.count.released == 0 {
		return errors.New("no CIDR was released, or none was allocated again")
	}
	return nil
}
