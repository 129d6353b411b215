// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package main

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	v2 "github.com/skep-operator/skep/resources/api/v2"
	"github.com/skep-operator/skep/resources/api/v2alpha1"
	"github.com/skep-operator/skep/resources/clustertest"
)

// oddPoolEdits are what users write into a CiliumPodIPPool by hand. $CIDR is its own, $PLAIN that of another pool.
var oddPoolEdits = []oddity{
	{what: "spec is a text", patch: `{"spec":"x"}`, named: true},
	{what: "no spec", patch: `{"spec":null}`},
	{what: "ipv4 is a text", patch: `{"spec":{"ipv4":"x"}}`, named: true},
	{what: "CIDRs are a text", patch: `{"spec":{"ipv4":{"cidrs":"$CIDR"}}}`, named: true},
	{what: "CIDRs are an object", patch: `{"spec":{"ipv4":{"cidrs":{"a":"$CIDR"}}}}`, named: true},
	{what: "a number among the CIDRs", patch: `{"spec":{"ipv4":{"cidrs":["$CIDR",7]}}}`, named: true},
	{what: "null among the CIDRs", patch: `{"spec":{"ipv4":{"cidrs":[null,"$CIDR"]}}}`},
	{what: "garbage", patch: `{"spec":{"ipv4":{"cidrs":["not-a-cidr"]}}}`, named: true},
	{what: "the whole world", patch: `{"spec":{"ipv4":{"cidrs":["0.0.0.0/0"]}}}`, named: true},
	{what: "a CIDR of another family", patch: `{"spec":{"ipv4":{"cidrs":["fd00::/80"]}}}`, named: true},
	{what: "the CIDR twice", patch: `{"spec":{"ipv4":{"cidrs":["$CIDR","$CIDR"]}}}`},
	{what: "the CIDR of another pool", patch: `{"spec":{"ipv4":{"cidrs":["$CIDR","$PLAIN"]}}}`, named: true},
	{what: "no CIDRs", patch: `{"spec":{"ipv4":{"cidrs":null}}}`},
	{what: "a huge CIDR", patch: `{"spec":{"ipv4":{"cidrs":["$HUGE"]}}}`, named: true},
	{what: "the mask is a text", patch: `{"spec":{"ipv4":{"maskSize":"28"}}}`, named: true},
	{what: "the mask is huge", patch: `{"spec":{"ipv4":{"maskSize":99999999999}}}`, named: true},
	{what: "the mask is negative", patch: `{"spec":{"ipv4":{"maskSize":-1}}}`, named: true},
	{what: "the mask is shorter than the CIDR", patch: `{"spec":{"ipv4":{"maskSize":8}}}`, named: true},
	{what: "fields of a newer version", patch: `{"spec":{"ipv4":{"future":[1]},"future":7},"status":"x"}`},
}

// handPools is a cluster in the mode multi-pool, in which the user writes pools by hand.
type handPools struct {
	*world
	o     *operator
	edits []*poolEdit
	plain int
}

// poolEdit is a pool that is healthy until something odd is written into it, and the node that has a block of it.
type poolEdit struct {
	oddity
	pool, node, cidr string
	block            string // of the node
	done             bool
}

func (e *poolEdit) String() string { return e.pool + " (" + e.what + ")" }

const plainPodPool = "plain"

// Pools are odd at the start of an operator, become odd while it runs, and are odd at the next start. Each time the operator
// stays up, a plain node is served, each node keeps its block, no two have the same, and pools of which nothing can be
// allocated are named. So it is when the pools are deleted.
func TestPoolsByHand(t *testing.T) {
	h := &handPools{world: newWorldIn(t, clustertest.Start(t))}
	h.define("CiliumNode", "CiliumPodIPPool")
	h.relax("CiliumNode", "CiliumPodIPPool")
	h.populate()

	h.start("first")
	eventually(t, "each node has a block of its pool", h.haveBlocks)
	h.keepOthers()
	h.end()

	h.write(0)
	h.start("second")
	h.stands("odd pools at the start")
	h.write(1)
	h.stands("odd pools while it runs")
	h.end()

	h.start("third")
	h.stands("all of them at the next start")
	h.dropAll()
	h.stands("without the pools")
	h.end()
}

func (h *handPools) args() []string {
	return []string{"--ipam=multi-pool", "--enable-ipv6=false", "--k8s-namespace=" + h.namespace, "--nodes-gc-interval=0"}
}

func (h *handPools) start(user string) {
	h.t.Helper()
	h.o = start(h.t, h.NewProxy(h.t).UserKubeconfig(h.t, user, "system:masters"), nil, h.args()...)
	h.o.leads()
}

func (h *handPools) end() {
	h.t.Helper()
	if code := h.o.stop(); code != 0 {
		h.t.Errorf("exit code %d", code)
	}
}

// populate makes a pool and a node for each edit, and one pool beside them. Half of the edits are for later.
func (h *handPools) populate() {
	h.t.Helper()
	h.makePool(plainPodPool, "10.88.0.0/16")
	for i, o := range slices.Concat(oddPoolEdits, oddPoolEdits, onAnything) {
		e := &poolEdit{oddity: o, pool: fmt.Sprintf("pool-%03d", i), node: fmt.Sprintf("node-%03d", i), cidr: fmt.Sprintf("10.80.%d.0/24", i)}
		h.edits = append(h.edits, e)
		h.makePool(e.pool, e.cidr)
		h.makeRequester(e.node, e.pool)
	}
}

func (h *handPools) makePool(name, cidr string) {
	h.t.Helper()
	h.make(v2alpha1.CiliumPodIPPoolResource, fmt.Sprintf(
		`{"apiVersion":"cilium.io/v2alpha1","kind":"CiliumPodIPPool","metadata":{"name":%q},"spec":{"ipv4":{"cidrs":[%q],"maskSize":28}}}`, name, cidr))
}

// makeRequester makes a node whose agent requests an address of a pool.
func (h *handPools) makeRequester(name, pool string) {
	h.t.Helper()
	h.make(v2.CiliumNodeResource, fmt.Sprintf(
		`{"apiVersion":"cilium.io/v2","kind":"CiliumNode","metadata":{"name":%q},"spec":{"ipam":{"pools":{"requested":[{"pool":%q,"needed":{"ipv4-addrs":1}}]}}}}`, name, pool))
}

func (h *handPools) make(resource schema.GroupVersionResource, text string) {
	h.t.Helper()
	u := &unstructured.Unstructured{}
	err := u.UnmarshalJSON([]byte(text))
	if err == nil {
		_, err = h.dynamic.Resource(resource).Create(h.t.Context(), u, metav1.CreateOptions{})
	}
	if err != nil {
		h.t.Fatal(err)
	}
}

// haveBlocks reports whether each node has a block of its pool, which it keeps from now on.
func (h *handPools) haveBlocks() bool {
	nodes := h.nodes()
	for _, e := range h.edits {
		list := poolLists(nodes[e.node])[e.pool]
		if len(list) != 1 {
			return false
		}
		e.block = list[0].String()
	}
	return true
}

// write writes the odd values of one half by hand.
func (h *handPools) write(half int) {
	h.t.Helper()
	pools := h.dynamic.Resource(v2alpha1.CiliumPodIPPoolResource)
	for i, e := range h.edits {
		if i%2 != half {
			continue
		}
		patch := strings.NewReplacer("$CIDR", e.cidr, "$PLAIN", "10.88.0.0/20").Replace(e.enlarged())
		_, err := pools.Patch(h.t.Context(), e.pool, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
		if err == nil && e.deletes {
			err = pools.Delete(h.t.Context(), e.pool, metav1.DeleteOptions{})
		}
		if err != nil {
			h.t.Errorf("%s: %v", e, err)
		}
		e.done = true
	}
}

// dropAll deletes the pools.
func (h *handPools) dropAll() {
	h.t.Helper()
	pools := h.dynamic.Resource(v2alpha1.CiliumPodIPPoolResource)
	for _, e := range h.edits {
		_, err := pools.Patch(h.t.Context(), e.pool, types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
		if err == nil {
			err = pools.Delete(h.t.Context(), e.pool, metav1.DeleteOptions{})
		}
		if err != nil && !apierrors.IsNotFound(err) {
			h.t.Errorf("%s: %v", e, err)
		}
		e.named = false
	}
}

// stands checks what must hold whatever was written.
func (h *handPools) stands(part string) {
	h.t.Helper()
	began := time.Now()
	h.o.leads()
	h.plain++
	name := fmt.Sprint("plain-", h.plain)
	h.makeRequester(name, plainPodPool)
	h.o.until("a plain node is served", func() bool { return len(poolLists(h.ciliumNode(name))[plainPodPool]) == 1 })
	h.areNamed()
	h.keepOthers()
	if n := h.o.log.Count("panicked"); n > 0 {
		h.t.Error("the operator has panicked")
	}
	h.t.Logf("%s: %s", part, time.Since(began).Round(time.Millisecond))
}

// keepOthers checks that each node has its block still, and no other node has it.
func (h *handPools) keepOthers() {
	h.t.Helper()
	nodes, owners := h.nodes(), map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(nodes)) {
		for _, list := range poolLists(nodes[name]) {
			for _, block := range list {
				if other := owners[block.String()]; other != "" {
					h.t.Errorf("%s and %s both have %s", name, other, block)
				}
				owners[block.String()] = name
			}
		}
	}
	for _, e := range h.edits {
		if owners[e.block] != e.node {
			h.t.Errorf("%s: node %s has lost %s", e, e.node, e.block)
		}
	}
}

// areNamed waits until all pools are named of which nothing can be allocated: in a warning of the log, in health, or in
// an Event.
func (h *handPools) areNamed() {
	h.t.Helper()
	var unnamed []string
	defer func() {
		if len(unnamed) > 0 {
			h.t.Errorf("named nowhere:\n%s", strings.Join(unnamed, "\n"))
		}
	}()
	h.o.until("all are named", func() bool {
		s, _ := h.o.status()
		health := s.degraded()
		warnings := strings.Join(slices.DeleteFunc(strings.Split(h.o.log.String(), "\n"), func(line string) bool {
			return !strings.Contains(line, "level=warning") && !strings.Contains(line, "level=error")
		}), "\n")
		unnamed = nil
		for _, e := range h.edits {
			word := regexp.MustCompile(`(^|[^A-Za-z0-9.-])` + e.pool + `($|[^A-Za-z0-9.-])`)
			if e.named && e.done && !word.MatchString(health) && !word.MatchString(warnings) && len(h.eventsOn("", "CiliumPodIPPool", e.pool)) == 0 {
				unnamed = append(unnamed, e.String())
			}
		}
		return len(unnamed) == 0
	})
}
