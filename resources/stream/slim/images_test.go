// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package slim

import (
	"encoding/json"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

func TestImagesAreThoseOfContainers(t *testing.T) {
	type pod struct {
		Meta `json:"metadata"`
		Spec struct {
			Images Images `json:"containers"`
		} `json:"spec"`
	}
	codec, err := Protobuf[pod, corev1.Pod]()
	if err != nil {
		t.Fatal(err)
	}
	full := &corev1.Pod{Spec: corev1.PodSpec{
		InitContainers: []corev1.Container{{Name: "config", Image: "init:1"}},
		Containers:     []corev1.Container{{Name: "cilium-agent", Image: "registry.test/cilium/cilium:v1.20.1@sha256:00"}, {Name: "none"}, {Name: "b", Image: "b:2"}},
	}}
	message, err := full.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(full)
	if err != nil {
		t.Fatal(err)
	}
	var decoded, parsed pod
	if err := codec.DecodeProtobuf(NewInterner(), message, &decoded); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &parsed); err != nil {
		t.Fatal(err)
	}
	for from, p := range map[string]pod{"protobuf": decoded, "JSON": parsed} {
		for container, want := range map[string]string{"cilium-agent": "registry.test/cilium/cilium:v1.20.1@sha256:00", "none": "", "b": "b:2", "config": "", "c": ""} {
			if got := p.Spec.Images.Of(container); got != want {
				t.Errorf("%s: the image of %s is %q, want %q", from, container, got, want)
			}
		}
		again, err := json.Marshal(p.Spec.Images)
		var back Images
		if err != nil || json.Unmarshal(again, &back) != nil || back != p.Spec.Images {
			t.Errorf("%s: %s is not read back: %v", from, again, err)
		}
	}
}
