// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package k8s

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utiljson "k8s.io/apimachinery/pkg/util/json"
)

const openAPIOfWidgets = `{"components":{"schemas":{
"Meta":{"properties":{"name":{"type":"string"}}},
"Widget":{"type":"object","x-kubernetes-group-version-kind":[{"group":"example.com","kind":"Widget","version":"v1"}],"properties":{
  "apiVersion":{"type":"string"},"kind":{"type":"string"},"metadata":{"allOf":[{"$ref":"#/components/schemas/Meta"}]},
  "spec":{"type":"object","properties":{
    "size":{"x-kubernetes-int-or-string":true},
    "parts":{"type":"array","items":{"type":"object","properties":{"name":{"type":"string"}}}},
    "of":{"type":"object","additionalProperties":{"type":"object","properties":{"name":{"type":"string"}}}},
    "labels":{"type":"object","additionalProperties":{"type":"string"}},
    "free":{"type":"object","additionalProperties":true},
    "open":{"type":"object","x-kubernetes-preserve-unknown-fields":true,"properties":{"in":{"type":"object","properties":{"a":{"type":"string"}}}}},
    "list":{"type":"array","x-kubernetes-preserve-unknown-fields":true,"items":{"type":"object","properties":{"in":{"type":"object","properties":{"a":{"type":"string"}}}}}},
    "any":{"x-kubernetes-preserve-unknown-fields":true},
    "object":{"type":"object","x-kubernetes-embedded-resource":true,"properties":{"apiVersion":{"type":"string"},"kind":{"type":"string"},"metadata":{"$ref":"#/components/schemas/Meta"}}},
    "empty":{"type":"object"}}}}}}}}`

// K8S-17: what the API server drops of an object is known from the schema that it publishes.
func TestShape(t *testing.T) {
	kind := schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Widget"}
	s, err := shapeIn([]byte(openAPIOfWidgets), kind)
	if err != nil || s == nil {
		t.Fatal(s, err)
	}
	for name, c := range map[string]struct {
		sent, kept string
		lacks      []string
	}{
		"all there is":  {sent: `{"apiVersion":"v","kind":"Widget","metadata":{"name":"w","any":{"x":1}},"spec":{"size":"1"}}`},
		"a field":       {`{"spec":{"size":1,"color":"red"}}`, `{"spec":{"size":1}}`, []string{"spec.color"}},
		"a root":        {`{"status":{"a":1},"spec":{}}`, `{"spec":{}}`, []string{"status"}},
		"of items":      {`{"spec":{"parts":[{"name":"a","kind":"x"},{"kind":"y"}]}}`, `{"spec":{"parts":[{"name":"a"},{}]}}`, []string{"spec.parts[].kind"}},
		"of entries":    {`{"spec":{"of":{"10.0.0.1":{"name":"a","kind":"x"},"b":{"kind":"y"}}}}`, `{"spec":{"of":{"10.0.0.1":{"name":"a"},"b":{}}}}`, []string{"spec.of{}.kind"}},
		"entries":       {sent: `{"spec":{"labels":{"any":"x"},"free":{"any":"x"}}}`},
		"of free ones":  {`{"spec":{"free":{"any":{"x":[{"y":1}]}}}}`, `{"spec":{"free":{"any":{}}}}`, []string{"spec.free{}.x"}},
		"kept, and not": {`{"spec":{"open":{"any":{"x":1},"in":{"a":"x","b":"y"}}}}`, `{"spec":{"open":{"any":{"x":1},"in":{"a":"x"}}}}`, []string{"spec.open.in.b"}},
		"items kept":    {`{"spec":{"list":[{"any":{"x":1},"in":{"a":"x","b":"y"}}]}}`, `{"spec":{"list":[{"any":{"x":1},"in":{"a":"x"}}]}}`, []string{"spec.list[].in.b"}},
		"anything":      {sent: `{"spec":{"any":[{"x":[{"y":1}]}],"object":{"apiVersion":"v1","kind":"Pod","metadata":{"labels":{"a":"b"}}}}}`},
		"no fields":     {`{"spec":{"empty":{"a":1}}}`, `{"spec":{"empty":{}}}`, []string{"spec.empty.a"}},
		"other types":   {sent: `{"spec":{"parts":"text","size":[1],"of":null}}`},
	} {
		t.Run(name, func(t *testing.T) {
			decode := func(text string) (content map[string]any) {
				if err := utiljson.Unmarshal([]byte(text), &content); err != nil {
					t.Fatal(err)
				}
				return content
			}
			if c.kept == "" {
				c.kept = c.sent
			}
			sent := decode(c.sent)
			if lacks := s.lackedOf(sent); !slices.Equal(lacks, c.lacks) {
				t.Errorf("%q, want %q", lacks, c.lacks)
			}
			if diff := cmp.Diff(decode(c.kept), s.pruned(sent)); diff != "" {
				t.Error(diff)
			}
			if diff := cmp.Diff(decode(c.sent), sent); diff != "" {
				t.Errorf("what was sent is changed: %s", diff)
			}
		})
	}
}

// A kind that the document does not describe has all fields: nothing is left out.
func TestShapeOfAKindThatIsNotDescribed(t *testing.T) {
	kind := schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Widget"}
	for name, document := range map[string]string{
		"another version":   strings.ReplaceAll(openAPIOfWidgets, `"version":"v1"`, `"version":"v2"`),
		"no schemas":        `{}`,
		"only as an object": `{"components":{"schemas":{"Widget":{"type":"object","x-kubernetes-group-version-kind":[{"group":"example.com","kind":"Widget","version":"v1"}]}}}}`,
		"kinds of no list":  `{"components":{"schemas":{"Widget":{"type":"object","x-kubernetes-group-version-kind":"Widget"}}}}`,
	} {
		if s, err := shapeIn([]byte(document), kind); s != nil || err != nil {
			t.Errorf("%s: %v, %v", name, s, err)
		}
	}
	var s *shape
	if lacks := s.lackedOf(map[string]any{"any": "x"}); lacks != nil {
		t.Errorf("%q", lacks)
	}
	for _, document := range []string{"<html>", "", `{"components":{"schemas":[]}}`, strings.ReplaceAll(openAPIOfWidgets, `"items":{`, `"items":7,"of":{`)} {
		if s, err := shapeIn([]byte(document), kind); s != nil || err == nil {
			t.Errorf("%.20s: %v", document, s)
		}
	}
}
