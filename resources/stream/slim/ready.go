// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package slim

import (
	"encoding/json"
	"fmt"
	"reflect"

	corev1 "k8s.io/api/core/v1"
)

// Ready is whether the condition Ready of a pod is True, in one byte. It decodes
// status.conditions.
type Ready bool

type readyCondition struct {
	Type   string `json:"type"`
	Status string `json:"status"`
}

func (c readyCondition) isReady() bool { return c.Type == "Ready" && c.Status == "True" }

// MarshalJSON implements json.Marshaler: the one condition, if it is True.
func (r Ready) MarshalJSON() ([]byte, error) {
	if !r {
		return []byte("null"), nil
	}
	return json.Marshal([]readyCondition{{"Ready", "True"}})
}

// UnmarshalJSON implements json.Unmarshaler.
func (r *Ready) UnmarshalJSON(data []byte) error {
	var all []readyCondition
	if err := json.Unmarshal(data, &all); err != nil {
		return err
	}
	*r = false
	for _, c := range all {
		*r = *r || Ready(c.isReady())
	}
	return nil
}

// AcceptsField implements FieldDecoder.
func (*Ready) AcceptsField(full reflect.Type) error {
	if full != reflect.TypeFor[[]corev1.PodCondition]() {
		return fmt.Errorf("slim.Ready keeps conditions of pods, not %s", full)
	}
	return nil
}

var (
	conditionType   = FieldNumber[corev1.PodCondition]("type")
	conditionStatus = FieldNumber[corev1.PodCondition]("status")
)

// DecodeField implements FieldDecoder.
func (r *Ready) DecodeField(f Field) error {
	*r = false
	for message := range f.Values() {
		var c readyCondition
		for rest := message; len(rest) > 0; {
			part, more, err := nextField(rest)
			if err != nil {
				return err
			}
			rest = more
			switch part.num {
			case conditionType:
				c.Type = string(part.value)
			case conditionStatus:
				c.Status = string(part.value)
			}
		}
		*r = *r || Ready(c.isReady())
	}
	return nil
}
