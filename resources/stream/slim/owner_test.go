// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package slim

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// bothWays decodes a pod from protobuf and from JSON.
func bothWays(t *testing.T, full *corev1.Pod) map[string]*Pod {
	t.Helper()
	codec, err := Protobuf[Pod, corev1.Pod]()
	if err != nil {
		t.Fatal(err)
	}
	message, err := full.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(full)
	if err != nil {
		t.Fatal(err)
	}
	pods := map[string]*Pod{"protobuf": {}, "JSON": {}}
	if err := codec.DecodeProtobuf(NewInterner(), message, pods["protobuf"]); err != nil {
		t.Fatal(err)
	}
	if err := codec.DecodeJSON(text, pods["JSON"]); err != nil {
		t.Fatal(err)
	}
	return pods
}

func TestOwnerIsTheController(t *testing.T) {
	want := OwnerReference{
		APIVersion: MakeString("apps/v1"), Kind: MakeString("ReplicaSet"), Name: "web", Controller: true,
		UID: ParseUID("b4a7a9d2-4a4f-4c1c-9d0e-6b8f7e3e1c55"),
	}
	full := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{OwnerReferences: []metav1.OwnerReference{
		{APIVersion: "v1", Kind: "ConfigMap", Name: "first"},
		{APIVersion: "v1", Kind: "ConfigMap", Name: "second", Controller: new(false)},
		{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "web", UID: "b4a7a9d2-4a4f-4c1c-9d0e-6b8f7e3e1c55", Controller: new(true)},
	}}}
	for from, pod := range bothWays(t, full) {
		if pod.Controller != MakeOwner(want) || pod.Controller.Reference() != want || pod.Controller.Kind() != "ReplicaSet" || pod.Controller.Name() != "web" {
			t.Errorf("%s: the owner is %+v, want %+v", from, pod.Controller.Reference(), want)
		}
	}
	full.OwnerReferences = full.OwnerReferences[:2]
	for from, pod := range bothWays(t, full) {
		if !pod.Controller.IsZero() || pod.Controller.Reference() != (OwnerReference{}) || pod.Controller.Name() != "" {
			t.Errorf("%s: %+v is no controller", from, pod.Controller.Reference())
		}
	}
}

// K8S-24: of parts of an owner that are longer than any there is, the beginnings are kept: it is an owner still.
func TestLongOwner(t *testing.T) {
	long := strings.Repeat("x", 300_000)
	full := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{OwnerReferences: []metav1.OwnerReference{
		{APIVersion: long, Kind: long, Name: long, UID: types.UID(long), Controller: new(true)},
	}}}
	for from, pod := range bothWays(t, full) {
		if size := SizeOf(pod); size > 8<<10 || pod.Controller.IsZero() || pod.Controller.Name() != long[:mostOfOwner] || pod.Controller.Reference().UID.String() != long[:mostOfOwner] {
			t.Errorf("%s: %d bytes are kept, of the owner %.600s", from, size, pod.Controller.Name())
		}
	}
}

func TestOwnerIsWrittenAsItIsRead(t *testing.T) {
	for _, owner := range []Owner{{}, MakeOwner(OwnerReference{Kind: MakeString("Job"), Name: "once", UID: ParseUID("not a uuid")})} {
		text, err := json.Marshal(owner)
		if err != nil {
			t.Fatal(err)
		}
		var got Owner
		if err := json.Unmarshal(text, &got); err != nil || got != owner {
			t.Errorf("%s is read as %+v, %v", text, got.Reference(), err)
		}
	}
}

// ID-32: of the ports of a pod, the first that fit count.
func TestMostNamedPorts(t *testing.T) {
	full := &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "web"}, {Name: "more"}}}}
	for i := range 10_000 {
		c := &full.Spec.Containers[i%2]
		c.Ports = append(c.Ports, corev1.ContainerPort{Name: fmt.Sprintf("port-%d", i), ContainerPort: int32(i), Protocol: corev1.ProtocolTCP})
	}
	for from, pod := range bothWays(t, full) {
		got := slices.Collect(pod.Spec.NamedPorts.All())
		if n := len(pod.Spec.NamedPorts.packed.String()); n < maxNamedPorts || n > maxNamedPorts+64 || got[0] != (NamedPort{"port-0", 0, "TCP"}) || got[1].Name != "port-2" {
			t.Errorf("%s: %d ports of %d bytes: %v", from, len(got), n, got[:2])
		}
	}
}

func TestNamedPortsAreThoseWithNames(t *testing.T) {
	full := &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{
		{Name: "web", Ports: []corev1.ContainerPort{{Name: "http", ContainerPort: 80, Protocol: corev1.ProtocolTCP}, {ContainerPort: 81}}},
		{Name: "none"},
		{Name: "dns", Ports: []corev1.ContainerPort{{Name: "dns", ContainerPort: 53, Protocol: corev1.ProtocolUDP}}},
	}}}
	want := []NamedPort{{"http", 80, "TCP"}, {"dns", 53, "UDP"}}
	for from, pod := range bothWays(t, full) {
		if got := slices.Collect(pod.Spec.NamedPorts.All()); !slices.Equal(got, want) || pod.Spec.NamedPorts != MakeNamedPorts(want...) {
			t.Errorf("%s: %v, want %v", from, got, want)
		}
		text, err := json.Marshal(pod.Spec.NamedPorts)
		var again NamedPorts
		if err != nil || json.Unmarshal(text, &again) != nil || again != pod.Spec.NamedPorts {
			t.Errorf("%s, %v, is not read back", text, err)
		}
	}
}
