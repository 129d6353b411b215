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

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"

	v2 "github.com/skep-operator/skep/resources/api/v2"
)

// routersUnderFaults are nodes that move between two CiliumBGPClusterConfigs, which are edited, overrides that come and go, and
// CiliumBGPNodeConfigs that are edited and deleted by hand.
type routersUnderFaults struct {
	*turmoil
	asn int64

	mu    sync.Mutex
	of    map[string]string   // the router that has a router ID
	ids   map[string][]string // by node
	given map[string]bool
}

// routerPool has room for the routers of all nodes.
var routerPool = netip.MustParsePrefix("10.70.0.0/24")

func bgpUnderFaults(f *turmoil) underFaults {
	b := &routersUnderFaults{turmoil: f, of: map[string]string{}, ids: map[string][]string{}, given: map[string]bool{}, asn: 64512}
	b.world.define("CiliumBGPClusterConfig", "CiliumBGPNodeConfig", "CiliumBGPNodeConfigOverride", "CiliumBGPPeerConfig")
	b.apply(v2.CiliumBGPPeerConfigResource, "CiliumBGPPeerConfig", "peers", map[string]any{"ebgpMultihop": int64(1)})
	b.editConfig("plain", "NotIn")
	b.editConfig("side", "In")
	f.witness(v2.CiliumBGPNodeConfigResource, b.see)
	return underFaults{
		name:    "routers of nodes",
		args:    []string{"--enable-bgp-control-plane", "--bgp-router-id-allocation-mode=ip-pool", "--bgp-router-id-allocation-ip-pool=" + routerPool.String()},
		churn:   []func(){b.move, b.move, b.edit, b.overrideOne, b.overrideOne, b.spoil, b.drop},
		rest:    b.rest,
		missing: b.missing,
	}
}

func (b *routersUnderFaults) apply(resource schema.GroupVersionResource, kind, name string, spec map[string]any) {
	b.t.Helper()
	_, err := b.dynamic.Resource(resource).Apply(b.t.Context(), name, &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": v2.SchemeGroupVersion.String(), "kind": kind, "metadata": map[string]any{"name": name}, "spec": spec,
	}}, metav1.ApplyOptions{FieldManager: "test", Force: true})
	if err != nil {
		b.t.Error(err)
	}
}

// editConfig writes a CiliumBGPClusterConfig of the nodes that are at the side, or of the others.
func (b *routersUnderFaults) editConfig(name, operator string) {
	b.t.Helper()
	b.asn++
	b.apply(v2.CiliumBGPClusterConfigResource, "CiliumBGPClusterConfig", name, map[string]any{
		"nodeSelector": map[string]any{"matchExpressions": []any{map[string]any{"key": "place", "operator": operator, "values": []any{"side"}}}},
		"bgpInstances": []any{
			map[string]any{"name": "a", "localASN": b.asn, "peers": []any{
				map[string]any{"name": "tor", "peerAddress": "192.0.2.1", "peerASN": int64(64500), "peerConfigRef": map[string]any{"name": "peers"}},
			}},
			map[string]any{"name": "b", "localASN": b.asn},
		},
	})
}

func (b *routersUnderFaults) edit() {
	if b.r.IntN(2) == 0 {
		b.editConfig("plain", "NotIn")
	} else {
		b.editConfig("side", "In")
	}
}

// node is one of the CiliumNodes.
func (b *routersUnderFaults) pick() string {
	names := make([]string, 0)
	for name := range b.nodes() {
		names = append(names, name)
	}
	slices.Sort(names)
	if i, ok := one(b.r, names); ok {
		return names[i]
	}
	return ""
}

// move has another CiliumBGPClusterConfig select a node, or the same.
func (b *routersUnderFaults) move() {
	place := []string{"side", "plain"}[b.r.IntN(2)]
	b.patchIfThere(v2.CiliumNodeResource, "", b.pick(), fmt.Sprintf(`{"metadata":{"labels":{"place":%q}}}`, place))
}

func (b *routersUnderFaults) overrideOne() {
	name, port := b.pick(), 1000+b.r.Int64N(10)
	if b.r.IntN(2) == 0 {
		err := b.dynamic.Resource(v2.CiliumBGPNodeConfigOverrideResource).Delete(b.t.Context(), name, metav1.DeleteOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			b.t.Error(err)
		}
		return
	}
	b.apply(v2.CiliumBGPNodeConfigOverrideResource, "CiliumBGPNodeConfigOverride", name, map[string]any{"bgpInstances": []any{
		map[string]any{"name": "b", "localPort": port, "routerID": routerIDByHand(name)},
	}})
}

// routerIDByHand is one for each node, out of the pool.
func routerIDByHand(name string) string {
	n := 0
	if _, err := fmt.Sscanf(name, "node-%d", &n); err != nil {
		n = 0 // the node that stays
	}
	return netip.AddrFrom4([4]byte{172, 16, byte(n / 256), byte(n)}).String()
}

func (b *routersUnderFaults) spoil() {
	b.patchIfThere(v2.CiliumBGPNodeConfigResource, "", b.pick(), `{"metadata":{"labels":{"seen":"yes"}},"spec":{"bgpInstances":[{"name":"odd","localASN":1}]}}`)
}

func (b *routersUnderFaults) drop() {
	err := b.dynamic.Resource(v2.CiliumBGPNodeConfigResource).Delete(b.t.Context(), b.pick(), metav1.DeleteOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		b.t.Error(err)
	}
}

func routersOf(u *unstructured.Unstructured) (routers []map[string]any) {
	list, _, _ := unstructured.NestedSlice(u.Object, "spec", "bgpInstances")
	for _, one := range list {
		routers = append(routers, one.(map[string]any))
	}
	return routers
}

// see judges each state of each CiliumBGPNodeConfig: no router ID is that of two routers.
func (b *routersUnderFaults) see(kind watch.EventType, u *unstructured.Unstructured) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, id := range b.ids[u.GetName()] {
		delete(b.of, id)
	}
	delete(b.ids, u.GetName())
	if kind == watch.Deleted {
		return
	}
	for _, router := range routersOf(u) {
		id, _ := router["routerID"].(string)
		if id == "" {
			continue
		}
		is := fmt.Sprint(router["name"], " of ", u.GetName())
		if other := b.of[id]; other != "" {
			b.t.Errorf("%s is given %s, which %s has", is, id, other)
		}
		b.of[id], b.given[is+id] = is, true
		b.ids[u.GetName()] = append(b.ids[u.GetName()], id)
	}
}

// rest: every CiliumNode has a CiliumBGPNodeConfig of the right owner, with the routers of that and what the override says, there
// are no others, and the conditions of the owners say so.
func (b *routersUnderFaults) rest() error {
	var errs []error
	configs, overrides := map[string]*unstructured.Unstructured{}, map[string]*unstructured.Unstructured{}
	for _, list := range []struct {
		of   schema.GroupVersionResource
		into map[string]*unstructured.Unstructured
	}{{v2.CiliumBGPNodeConfigResource, configs}, {v2.CiliumBGPNodeConfigOverrideResource, overrides}, {v2.CiliumBGPClusterConfigResource, configs}} {
		all := b.list(list.of)
		for i := range all.Items {
			list.into[all.Items[i].GetName()] = &all.Items[i]
		}
	}
	nodes, selected := b.nodes(), map[string]bool{}
	for name, node := range nodes {
		owner := "plain"
		if node.GetLabels()["place"] == "side" {
			owner = "side"
		}
		selected[owner] = true
		u := configs[name]
		if u == nil || len(u.GetOwnerReferences()) != 1 || u.GetOwnerReferences()[0].Name != owner {
			errs = append(errs, fmt.Errorf("node %s of %s has the CiliumBGPNodeConfig %v", name, owner, u))
			continue
		}
		errs = append(errs, checkRouters(name, routersOf(u), routersOf(configs[owner]), overrides[name]))
	}
	for _, owner := range []string{"plain", "side"} {
		errs = append(errs, checkConditions(configs[owner], !selected[owner]))
	}
	for name := range configs {
		if nodes[name] == nil && name != "plain" && name != "side" {
			errs = append(errs, fmt.Errorf("CiliumBGPNodeConfig %s has no node", name))
		}
	}
	return errors.Join(errs...)
}

// checkConditions: a CiliumBGPClusterConfig has its three conditions, of which only one can be True, that it selects no node.
func checkConditions(config *unstructured.Unstructured, noNode bool) error {
	if config == nil {
		return errors.New("a CiliumBGPClusterConfig is missing")
	}
	list, _, _ := unstructured.NestedSlice(config.Object, "status", "conditions")
	found := 0
	for _, one := range list {
		condition := one.(map[string]any)
		kind, _ := condition["type"].(string)
		if !strings.HasPrefix(kind, "cilium.io/") {
			continue
		}
		found++
		isTrue := condition["status"] == "True"
		if isTrue != (noNode && kind == "cilium.io/NoMatchingNode") || condition["observedGeneration"] != config.GetGeneration() {
			return fmt.Errorf("CiliumBGPClusterConfig %s, which selects no node: %t, has at generation %d the condition %v", config.GetName(), noNode, config.GetGeneration(), condition)
		}
	}
	if found != 3 {
		return fmt.Errorf("CiliumBGPClusterConfig %s has %d conditions of its own", config.GetName(), found)
	}
	return nil
}

func checkRouters(name string, has, of []map[string]any, override *unstructured.Unstructured) error {
	if len(has) != len(of) {
		return fmt.Errorf("node %s has %d routers", name, len(has))
	}
	for i, router := range has {
		id, err := netip.ParseAddr(fmt.Sprint(router["routerID"]))
		port := any(nil)
		if override != nil && router["name"] == "b" {
			port = routersOf(override)[0]["localPort"]
		}
		inPool := err == nil && routerPool.Contains(id)
		if router["name"] != of[i]["name"] || router["localASN"] != of[i]["localASN"] || router["localPort"] != port || inPool != (port == nil) {
			return fmt.Errorf("node %s has the router %v of %v and %v", name, router, of[i], override)
		}
	}
	return nil
}

func (b *routersUnderFaults) missing() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.given) < 20 {
		return fmt.Errorf("%d of 20 router IDs were given", len(b.given))
	}
	return nil
}
