// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package main

import (
	"encoding/json"
	"fmt"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	v2 "github.com/skep-operator/skep/resources/api/v2"
)

// tellers tell about pods what is to be in slices. What they look at is what the
// resource has; the rest they do as agents and kubelets do.
type tellers interface {
	resource() schema.GroupVersionResource
	// whole reports whether an object has all that it takes to be in a slice.
	whole(*unstructured.Unstructured) bool
	// entry is what a slice is to say of a whole object.
	entry(u *unstructured.Unstructured, numbers map[string]string) string
	// look tells what is known of a pod now, with the identities that there are.
	look(pod *livingPod, numbers map[string]string)
	// move gives a pod another address.
	move(pod *livingPod, ip string)
	// mute tells nothing until the next look.
	mute(*livingPod)
}

// endpointTellers are agents that write CiliumEndpoints.
type endpointTellers struct{ *podsUnderFaults }

func ofEndpoints(p *podsUnderFaults) tellers { return endpointTellers{p} }

func (endpointTellers) resource() schema.GroupVersionResource { return v2.CiliumEndpointResource }

func (endpointTellers) whole(u *unstructured.Unstructured) bool {
	_, told, _ := unstructured.NestedInt64(u.Object, "status", "identity", "id")
	_, placed, _ := unstructured.NestedMap(u.Object, "status", "networking")
	return told && placed
}

func (endpointTellers) entry(u *unstructured.Unstructured, _ map[string]string) string {
	id, _, _ := unstructured.NestedInt64(u.Object, "status", "identity", "id")
	networking, _, _ := unstructured.NestedMap(u.Object, "status", "networking")
	return entryOf(id, networking)
}

// look takes the identity with the labels of the pod, and what was told before stays
// until there is one.
func (t endpointTellers) look(pod *livingPod, numbers map[string]string) {
	number := numbers[written(t.tenants.set(pod.Namespace, t.tenants.pods[pod.NamespacedName]))]
	if number != "" && number != pod.identity {
		pod.identity = number
		t.note() // the one before may be deleted while other pods are looked at
		t.tell(pod)
	}
}

// tell is what the agent tells about a pod that has an identity.
func (t endpointTellers) tell(pod *livingPod) {
	id, err := strconv.ParseInt(pod.identity, 10, 64)
	if err != nil {
		t.t.Fatal(err)
	}
	patch, err := json.Marshal(map[string]any{"status": endpointStatus(id, pod.ip)})
	if err != nil {
		t.t.Fatal(err)
	}
	t.patchEndpoint(pod, string(patch))
}

func (t endpointTellers) move(pod *livingPod, ip string) {
	if pod.identity != "" {
		pod.ip = ip
		t.tell(pod)
	}
}

func (t endpointTellers) mute(pod *livingPod) {
	pod.identity = ""
	t.patchEndpoint(pod, `{"status":{"identity":null}}`)
}

// podTellers are kubelets that write the addresses of pods.
type podTellers struct{ *podsUnderFaults }

func ofPods(p *podsUnderFaults) tellers {
	p.tenants.runs(home, settled, p.ip())
	return podTellers{p}
}

func (podTellers) resource() schema.GroupVersionResource {
	return corev1.SchemeGroupVersion.WithResource("pods")
}

func (podTellers) whole(u *unstructured.Unstructured) bool {
	node, _, _ := unstructured.NestedString(u.Object, "spec", "nodeName")
	ip, _, _ := unstructured.NestedString(u.Object, "status", "podIP")
	phase, _, _ := unstructured.NestedString(u.Object, "status", "phase")
	return node != "" && ip != "" && phase == "Running"
}

func (t podTellers) entry(u *unstructured.Unstructured, numbers map[string]string) string {
	number := numbers[written(t.tenants.set(u.GetNamespace(), u.GetLabels()))]
	id, err := strconv.ParseInt(number, 10, 64)
	if err != nil {
		return fmt.Sprintf("no identity: %q", number)
	}
	ip, _, _ := unstructured.NestedString(u.Object, "status", "podIP")
	networking, _, _ := unstructured.NestedMap(endpointStatus(id, ip), "networking")
	return entryOf(id, networking)
}

func (t podTellers) look(pod *livingPod, _ map[string]string) {
	if !pod.placed {
		t.move(pod, pod.ip)
	}
}

func (t podTellers) move(pod *livingPod, ip string) {
	pod.ip, pod.placed = ip, true
	t.tenants.runs(pod.Namespace, pod.Name, ip)
}

func (t podTellers) mute(pod *livingPod) {
	pod.placed = false
	t.tenants.stalls(pod.Namespace, pod.Name)
}
