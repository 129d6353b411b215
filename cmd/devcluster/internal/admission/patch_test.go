// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package admission

import (
	"encoding/json"
	"testing"

	"github.com/skep-operator/skep/resources/clustertest/control"
)

func TestPatch(t *testing.T) {
	const object = `{"metadata":{"labels":{"a/b":"1"}},"spec":{"ipam":{"podCIDRs":["10.0.0.0/24"]}}}`
	for _, test := range []struct {
		name string
		rule control.Admission
		want string
	}{
		{"nothing to do", control.Admission{Drop: []string{"/spec/none", "/spec/ipam/podCIDRs/1", "/none/at/all"}}, ""},
		{"drop", control.Admission{Drop: []string{"/spec/ipam/podCIDRs", "/metadata/labels/a~1b"}},
			`[{"op":"remove","path":"/spec/ipam/podCIDRs","value":null},{"op":"remove","path":"/metadata/labels/a~1b","value":null}]`},
		{"drop an element", control.Admission{Drop: []string{"/spec/ipam/podCIDRs/0"}}, `[{"op":"remove","path":"/spec/ipam/podCIDRs/0","value":null}]`},
		{"set", control.Admission{Set: map[string]any{"/metadata/labels/c": "2"}}, `[{"op":"add","path":"/metadata/labels/c","value":"2"}]`},
		{"set in a parent that is missing", control.Admission{Set: map[string]any{"/status/ipam/a~1b": 1, "/status/ipam/c": 2}},
			`[{"op":"add","path":"/status","value":{"ipam":{"a/b":1,"c":2}}},{"op":"add","path":"/status/ipam/c","value":2}]`},
		{"patch first", control.Admission{Patch: json.RawMessage(`[{"op":"test","path":"/spec"}]`), Drop: []string{"/spec"}},
			`[{"op":"test","path":"/spec"},{"op":"remove","path":"/spec","value":null}]`},
	} {
		got, err := patchOf(test.rule, []byte(object))
		if err != nil || string(got) != test.want {
			t.Errorf("%s:\n%s, %v\nwant\n%s", test.name, got, err, test.want)
		}
	}
	if _, err := patchOf(control.Admission{Drop: []string{"/a"}}, []byte("nonsense")); err == nil {
		t.Error("nonsense is patched")
	}
}

func TestRulesThatMeanNothingAreRefused(t *testing.T) {
	reject := &control.Reject{}
	for name, ask := range map[string]control.Admission{
		"no action":         {ID: "a"},
		"two actions":       {ID: "a", Reject: reject, Drop: []string{"/a"}},
		"ID":                {ID: "A b", Reject: reject},
		"success":           {ID: "a", Reject: &control.Reject{Codes: []int{500, 200}}},
		"patience":          {ID: "a", Hang: &control.Hang{Patience: 31e9}},
		"operation":         {ID: "a", Reject: reject, Match: control.AdmissionMatch{Operations: []string{"create"}}},
		"group":             {ID: "a", Reject: reject, Match: control.AdmissionMatch{Groups: []string{""}}},
		"pointer":           {ID: "a", Drop: []string{"a"}},
		"pointer of a set":  {ID: "a", Set: map[string]any{"a": 1}},
		"patch of one":      {ID: "a", Patch: json.RawMessage(`{"op":"remove"}`)},
		"probability":       {ID: "a", Reject: reject, Probability: 2},
		"negative distance": {ID: "a", Reject: reject, Every: -1},
	} {
		if validate(ask) == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}
