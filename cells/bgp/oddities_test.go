// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package bgp

import (
	"context"
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/skep-operator/skep/resources/operatortest"
)

// oddity is an odd change of an object, as a merge patch.
type oddity struct {
	what, patch string
	// named says that the object has no effect then, and the user must be able to find it: the log or health names it.
	named bool
	// stays says that the CiliumBGPNodeConfig of the node stays as it is.
	stays bool
}

const hugeText = 200_000

// oddities are those of each kind, beside those of any.
var oddities = map[string][]oddity{
	"CiliumBGPClusterConfig": {
		{what: "a selector is a text", patch: `{spec: {nodeSelector: "a=b"}}`, named: true, stays: true},
		{what: "a selector that is none", patch: `{spec: {nodeSelector: {matchExpressions: [{key: a, operator: Near, values: [b]}]}}}`, named: true, stays: true},
		{what: "a label is a number", patch: `{spec: {nodeSelector: {matchLabels: {a: 7}}}}`, named: true, stays: true},
		{what: "routers are a text", patch: `{spec: {bgpInstances: x}}`, named: true, stays: true},
		{what: "a number among the routers", patch: `{spec: {bgpInstances: [7]}}`, named: true, stays: true},
		{what: "an ASN is a text", patch: `{spec: {bgpInstances: [{name: main, localASN: "64512"}]}}`, named: true, stays: true},
		{what: "a port is huge", patch: `{spec: {bgpInstances: [{name: main, localPort: 99999999999}]}}`, named: true, stays: true},
		{what: "peers are an object", patch: `{spec: {bgpInstances: [{name: main, peers: {name: x}}]}}`, named: true, stays: true},
		{what: "a reference is a text", patch: `{spec: {bgpInstances: [{name: main, peers: [{name: x, peerConfigRef: std}]}]}}`, named: true, stays: true},
		{what: "spec is a list", patch: `{spec: [1]}`, named: true, stays: true},
		{what: "no routers", patch: `{spec: {bgpInstances: null}}`},
		{what: "the same router twice", patch: `{spec: {bgpInstances: [{name: main}, {name: main, localASN: 7}]}}`},
		{what: "a router without a name", patch: `{spec: {bgpInstances: [{localASN: 7}]}}`},
		{what: "fields of a newer version", patch: `{spec: {future: [1], bgpInstances: [{name: main, future: {a: 1}, peers: [{name: x, future: 7}]}]}, status: {future: 1}}`},
		{what: "status is a text", patch: `{status: x}`},
		{what: "no spec", patch: `{spec: null}`},
	},
	"CiliumBGPNodeConfigOverride": {
		{what: "routers are a text", patch: `{spec: {bgpInstances: x}}`, named: true, stays: true},
		{what: "a router ID is a number", patch: `{spec: {bgpInstances: [{name: main, routerID: 7}]}}`, named: true, stays: true},
		{what: "an address is an object", patch: `{spec: {bgpInstances: [{name: main, peers: [{name: x, localAddress: {a: 1}}]}]}}`, named: true, stays: true},
		{what: "spec is a number", patch: `{spec: 7}`, named: true, stays: true},
		{what: "no spec", patch: `{spec: null}`},
		{what: "a router of nobody", patch: `{spec: {bgpInstances: [{name: other, routerID: 10.0.0.1}]}}`},
		{what: "fields of a newer version", patch: `{spec: {future: 1, bgpInstances: [{name: main, future: 1}]}, status: x}`},
	},
	"CiliumBGPNodeConfig": {
		{what: "routers are a text", patch: `{spec: {bgpInstances: x}}`},
		{what: "a number among the routers", patch: `{spec: {bgpInstances: [7, {name: main}]}}`},
		{what: "an ASN is a text", patch: `{spec: {bgpInstances: [{name: main, localASN: x}]}}`},
		{what: "a huge name", patch: `{spec: {bgpInstances: [{name: ` + strings.Repeat("x", hugeText) + `}]}}`},
		{what: "spec is a text", patch: `{spec: x}`},
		{what: "no spec", patch: `{spec: null}`},
		{what: "status is a list", patch: `{status: [1]}`},
	},
	"CiliumBGPPeerConfig": {
		{what: "the secret is a number", patch: `{spec: {authSecretRef: 7}}`},
		{what: "spec is a text", patch: `{spec: x}`},
		{what: "no spec", patch: `{spec: null}`},
	},
	"CiliumNode": {
		{what: "many labels", patch: `{metadata: {labels: {a.b.c/d: "", x: ""}}}`},
		{what: "spec is a text", patch: `{spec: x}`},
	},
}

// onAnything are oddities of every kind.
var onAnything = []oddity{
	{what: "a huge annotation", patch: `{metadata: {annotations: {example.com/huge: ` + strings.Repeat("x", hugeText) + `}}}`},
	{what: "managed by another program", patch: `{metadata: {labels: {app.kubernetes.io/managed-by: Helm}}}`},
}

// relax lets the server store anything in a kind, until the test ends.
func (w *world) relax(kind string) {
	w.T.Helper()
	client, name := w.Dynamic.Resource(definitions), resources[kind].GroupResource().String()
	before, err := client.Get(w.T.Context(), name, metav1.GetOptions{})
	if err != nil {
		w.T.Fatal(err)
	}
	now := before.DeepCopy()
	versions, _, _ := unstructured.NestedSlice(now.Object, "spec", "versions")
	for _, v := range versions {
		v.(map[string]any)["schema"] = map[string]any{"openAPIV3Schema": map[string]any{"type": "object", "x-kubernetes-preserve-unknown-fields": true}}
	}
	_ = unstructured.SetNestedSlice(now.Object, versions, "spec", "versions")
	if _, err := client.Update(w.T.Context(), now, metav1.UpdateOptions{}); err != nil {
		w.T.Fatal(err)
	}
	w.T.Cleanup(func() {
		operatortest.Eventually(w.T, kind+" is as before", func() bool {
			current, err := client.Get(context.Background(), name, metav1.GetOptions{})
			if err != nil {
				return false
			}
			current.Object["spec"] = before.Object["spec"]
			_, err = client.Update(context.Background(), current, metav1.UpdateOptions{})
			return err == nil
		})
	})
}

// BGP-12, BGP-19, BGP-F1 to BGP-F4: whatever objects are edited to be, the operator does not panic, nodes that are not concerned are
// served, what has no effect is named, and all is as it should be when the object is repaired.
func TestOddities(t *testing.T) {
	w := newWorld(t)
	for kind := range resources {
		w.relax(kind)
	}
	w.create("CiliumBGPPeerConfig", "{metadata: {name: std}, spec: {}}")
	w.create("CiliumBGPClusterConfig", rackConfig, "{metadata: {name: others}, spec: {nodeSelector: {matchLabels: {rack: r2}}}}") // the oldest: one without a spec selects all nodes
	w.create("CiliumBGPClusterConfig", rackConfig)
	w.create("CiliumBGPNodeConfigOverride", n1Override)
	w.node("n1", "{rack: r1}")
	o := w.start()
	w.routers("n1", overriddenRouters)
	objects := map[string]string{"CiliumBGPClusterConfig": "rack", "CiliumBGPNodeConfigOverride": "n1", "CiliumBGPNodeConfig": "n1", "CiliumBGPPeerConfig": "std", "CiliumNode": "n1"}
	for kind, all := range oddities {
		for i, odd := range append(all, onAnything...) {
			name := objects[kind]
			before := w.get(kind, name)
			w.patch(kind, name, odd.patch)
			if odd.named {
				operatortest.Eventually(t, fmt.Sprintf("%s %s is named: %s", kind, name, odd.what), func() bool {
					return strings.Contains(o.Degraded("bgp"), kind+" "+name)
				})
			}
			other := strings.ToLower(fmt.Sprintf("%s-%d", kind, i))
			w.node(other, "{rack: r2}") // another one is served meanwhile
			w.routers(other, rackRouters)
			if odd.stays {
				w.routers("n1", overriddenRouters)
			}
			w.delete("CiliumNode", other)
			w.restore(kind, before)
			w.routers("n1", overriddenRouters)
			operatortest.Eventually(t, "nothing is degraded after "+odd.what, func() bool { return o.Degraded("bgp") == "" })
		}
	}
	for _, m := range o.Messages("bgp") {
		if strings.Contains(m, "panic") {
			t.Error(m)
		}
	}
}

// restore puts an object in the place of what it became.
func (w *world) restore(kind string, before *unstructured.Unstructured) {
	w.T.Helper()
	operatortest.Eventually(w.T, kind+" is repaired", func() bool {
		now := w.get(kind, before.GetName())
		if now == nil {
			return true
		}
		repaired := before.DeepCopy()
		repaired.SetResourceVersion(now.GetResourceVersion())
		_, err := w.Dynamic.Resource(w.resource(kind)).Update(w.T.Context(), repaired, metav1.UpdateOptions{})
		return err == nil
	})
}
