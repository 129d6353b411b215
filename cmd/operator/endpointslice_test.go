// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package main

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	v2 "github.com/skep-operator/skep/resources/api/v2"
	"github.com/skep-operator/skep/resources/api/v2alpha1"
)

// Slices are made of pods and of the identities that the operator makes for them,
// without CiliumEndpoints; and a pod that goes leaves them.
func TestSlicesOfPods(t *testing.T) {
	w := newTenants(t)
	w.define()
	w.addNode("n1") // pods of nodes without Cilium have no identities
	w.node = "n1"
	o, _ := w.run("slim", nil, "--identity-management-mode=operator", "--enable-cilium-endpoint-slice", "--ces-controller-mode=slim", "--ces-slice-mode=fcfs")
	o.leads()
	w.label("shop", nil)
	for i := range 3 {
		name := fmt.Sprint("web-", i)
		w.begin("shop", name, map[string]string{"app": name})
		w.runs("shop", name, fmt.Sprint("10.255.0.", i+1))
	}
	eventually(t, "all pods are in a slice", func() bool { return len(w.slicedIn()) == 3 })
	w.end("shop", "web-1")
	eventually(t, "one of them is not any more", func() bool { return len(w.slicedIn()) == 2 && len(w.slicedIn()["shop/web-1"]) == 0 })
}

// Number 30 of the contract's endpoint-slices.md: the same with the identities that agents make. The operator makes none.
func TestSlicesOfPodsWithIdentitiesOfAgents(t *testing.T) {
	w := newTenants(t)
	w.define()
	w.addNode("n1")
	w.node = "n1"
	w.label("shop", nil)
	o, _ := w.run("slim", nil, "--identity-management-mode=agent", "--enable-cilium-endpoint-slice", "--ces-controller-mode=slim")
	o.leads()
	for i := range 3 {
		name := fmt.Sprint("web-", i)
		labels := map[string]string{"app": name}
		w.begin("shop", name, labels)
		w.runs("shop", name, fmt.Sprint("10.255.0.", i+1))
		w.identity(fmt.Sprint(1000+i), w.set("shop", labels))
	}
	eventually(t, "all pods are in a slice", func() bool { return len(w.slicedIn()) == 3 })
	if all := w.identities(); len(all) != 3 {
		t.Errorf("there are %d identities, three of them of agents", len(all))
	}
}

// CES-35, CES-36: who may write the status of a pod takes no address of others for it, and sends what goes to it nowhere else.
func TestForgedStatusOfAPod(t *testing.T) {
	w := newTenants(t)
	w.define()
	w.addNodeAt("n1", hostIP)
	w.addNodeAt("n2", "192.168.0.2")
	w.node = "n1"
	o, _ := w.run("slim", nil, "--identity-management-mode=operator", "--enable-cilium-endpoint-slice", "--ces-controller-mode=slim", "--ces-slice-mode=fcfs")
	o.leads()
	w.label("evil", nil)
	w.begin("evil", "web", map[string]string{"app": "web"})
	forge := func(host, ip string) {
		t.Helper()
		w.patchPod("evil", "web", fmt.Sprintf(`{"status":{"phase":"Running","hostIP":%q,"hostIPs":[{"ip":%q}],"podIP":%q,"podIPs":[{"ip":%q}]}}`, host, host, ip, ip), "status")
	}
	shows := func(want string) {
		t.Helper()
		eventually(t, "the slices of evil show "+want, func() bool {
			var entries []any
			for _, slice := range w.list(v2alpha1.CiliumEndpointSliceResource).Items {
				for _, e := range entriesOf(&slice) {
					networking, _, _ := unstructured.NestedMap(e.(map[string]any), "networking")
					entries = append(entries, networking)
				}
			}
			text, err := json.Marshal(entries)
			return err == nil && string(text) == want
		})
	}
	const right = `[{"addressing":[{"ipv4":"10.255.0.9"}],"node":"` + hostIP + `"}]`
	forge(hostIP, "10.255.0.9")
	shows(right)
	for _, ip := range []string{"192.168.0.2", "127.0.0.1", "169.254.169.254", "224.0.0.1", "0.0.0.0"} {
		forge(hostIP, ip)
		shows("null")
		forge(hostIP, "10.255.0.9")
		shows(right)
	}
	forge("203.0.113.9", "10.255.0.9")
	eventually(t, "the pod has Events", func() bool {
		events, err := w.core.CoreV1().Events("evil").List(t.Context(), metav1.ListOptions{FieldSelector: "reason=PodAddressRefused,involvedObject.name=web"})
		return err == nil && slices.ContainsFunc(events.Items, func(e corev1.Event) bool { return strings.Contains(e.Message, "hostIP 203.0.113.9") })
	})
	w.newPodAt("evil", "last", "10.255.0.10")
	eventually(t, "there are two", func() bool { return len(w.slicedIn()) == 2 })
	shows(`[{"addressing":[{"ipv4":"10.255.0.10"}],"node":"` + hostIP + `"},` + right[1:])
}

// addNodeAt makes a CiliumNode with an address, as its agent does.
func (w *world) addNodeAt(name, ip string) {
	w.t.Helper()
	w.addNode(name)
	patch := fmt.Sprintf(`{"spec":{"addresses":[{"type":"InternalIP","ip":%q}]}}`, ip)
	if _, err := w.dynamic.Resource(v2.CiliumNodeResource).Patch(w.t.Context(), name, types.MergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
		w.t.Fatal(err)
	}
}

// newPodAt makes a pod that runs.
func (w *tenants) newPodAt(namespace, name, ip string) {
	w.t.Helper()
	w.begin(namespace, name, map[string]string{"app": name})
	w.runs(namespace, name, ip)
}
