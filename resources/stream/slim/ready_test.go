// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package slim

import (
	"encoding/json"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

func TestReady(t *testing.T) {
	type kept struct {
		Meta   `json:"metadata"`
		Status struct {
			Ready Ready `json:"conditions"`
		} `json:"status"`
	}
	codec, err := Protobuf[kept, corev1.Pod]()
	if err != nil {
		t.Fatal(err)
	}
	condition := func(kind corev1.PodConditionType, status corev1.ConditionStatus) corev1.PodCondition {
		return corev1.PodCondition{Type: kind, Status: status, Reason: "Ready", Message: "True"}
	}
	for name, c := range map[string]struct {
		conditions []corev1.PodCondition
		want       Ready
	}{
		"none":       {nil, false},
		"ready":      {[]corev1.PodCondition{condition("ContainersReady", "False"), condition("Ready", "True"), condition("PodScheduled", "False")}, true},
		"not ready":  {[]corev1.PodCondition{condition("ContainersReady", "True"), condition("Ready", "False"), condition("PodScheduled", "True")}, false},
		"not known":  {[]corev1.PodCondition{condition("Ready", "Unknown")}, false},
		"of nothing": {[]corev1.PodCondition{condition("Ready", "")}, false},
	} {
		full := &corev1.Pod{Status: corev1.PodStatus{Conditions: c.conditions}}
		message, err := full.Marshal()
		if err != nil {
			t.Fatal(err)
		}
		pod := kept{}
		pod.Status.Ready = true
		if err := codec.DecodeProtobuf(NewInterner(), message, &pod); err != nil || len(c.conditions) > 0 && pod.Status.Ready != c.want {
			t.Errorf("%s: %v, %v", name, pod.Status.Ready, err)
		}
		text, err := json.Marshal(c.conditions)
		if err != nil {
			t.Fatal(err)
		}
		ready := !c.want
		if err := json.Unmarshal(text, &ready); err != nil || ready != c.want {
			t.Errorf("%s in JSON: %v, %v", name, ready, err)
		}
		if text, err = json.Marshal(c.want); err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(text, &ready); err != nil || ready != c.want {
			t.Errorf("%s written as %s: %v, %v", name, text, ready, err)
		}
	}
	if _, err := Protobuf[struct {
		Meta   `json:"metadata"`
		Status struct {
			Ready Ready `json:"conditions"`
		} `json:"status"`
	}, corev1.Node](); err == nil {
		t.Error("conditions of a Node are taken for those of a pod")
	}
}
