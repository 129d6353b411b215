// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/skep-operator/skep/runtime/seedtest"
)

// schemas are the schemas of objects by the API server, those of a group and version at a time.
type schemas struct {
	l     *largest
	known map[schema.GroupVersion]set // by the name of a type
}

// of is the schema of a kind. The API server publishes that of a new definition after a moment.
func (s *schemas) of(g giant) filler {
	s.l.t.Helper()
	version := g.resource.GroupVersion()
	f, found := s.find(version, g.kind)
	eventually(s.l.t, "the schema of "+g.kind+" is published", func() bool {
		if !found {
			delete(s.known, version)
			f, found = s.find(version, g.kind)
		}
		return found
	})
	return f
}

func (s *schemas) find(version schema.GroupVersion, kind string) (f filler, found bool) {
	s.l.t.Helper()
	all := s.known[version]
	if all == nil {
		path := "/openapi/v3/apis/" + version.String()
		if version.Group == "" {
			path = "/openapi/v3/api/" + version.Version
		}
		text, err := s.l.core.Discovery().RESTClient().Get().AbsPath(path).SetHeader("Accept", "application/json").DoRaw(s.l.t.Context())
		var document struct{ Components struct{ Schemas set } }
		if err == nil {
			err = json.Unmarshal(text, &document)
		}
		if err != nil && !apierrors.IsNotFound(err) {
			s.l.t.Fatal(err)
		}
		all = document.Components.Schemas
		s.known[version] = all
	}
	for _, value := range all {
		one := value.(set)
		kinds, _ := one["x-kubernetes-group-version-kind"].([]any)
		for _, k := range kinds {
			if k := k.(set); k["kind"] == kind && k["version"] == version.Version && k["group"] == version.Group {
				return filler{all: all, root: one}, true
			}
		}
	}
	return filler{}, false
}

// filler makes values of a schema in which each text is one of an attacker, as far as the schema says that it may be.
type filler struct {
	all  set // by the name of a type
	root set
	text string
}

// deepest is how deep values are filled.
const deepest = 7

// resolved is a schema without references.
func (f filler) resolved(s set) set {
	for range deepest {
		if all, _ := s["allOf"].([]any); len(all) == 1 && s["$ref"] == nil {
			s = all[0].(set)
		}
		name, is := s["$ref"].(string)
		if !is {
			return s
		}
		s, _ = f.all[name[strings.LastIndexByte(name, '/')+1:]].(set)
	}
	return s
}

// value is a value of a schema, with the fields that it has to have, or with all. It is nil where none is known.
func (f filler) value(s set, whole bool, depth int) any {
	s = f.resolved(s)
	if depth > deepest || s == nil {
		return nil
	}
	if enum, _ := s["enum"].([]any); len(enum) > 0 {
		return enum[len(enum)-1] // the first one may be empty
	}
	if s["x-kubernetes-int-or-string"] == true || s["format"] == "int-or-string" {
		return int64(80)
	}
	switch s["type"] {
	case "string":
		return f.string(s)
	case "integer", "number":
		least, _ := s["minimum"].(float64)
		return max(int64(least), 1)
	case "boolean":
		return false
	case "array":
		items, _ := s["items"].(set)
		if item := f.value(items, whole, depth+1); item != nil {
			return []any{item}
		}
		return nil
	}
	return f.object(s, whole, depth)
}

func (f filler) object(s set, whole bool, depth int) any {
	object := set{}
	needed, _ := s["required"].([]any)
	properties, _ := s["properties"].(set)
	for name, property := range properties {
		isNeeded := slices.Contains(needed, any(name))
		if !whole && !isNeeded {
			continue
		}
		value := f.value(property.(set), whole, depth+1)
		if value == nil && isNeeded {
			return nil
		}
		if value != nil {
			object[name] = value
		}
	}
	if entry, is := s["additionalProperties"].(set); is {
		if value := f.value(entry, whole, depth+1); value != nil {
			object[f.text] = value
		}
	} else if s["x-kubernetes-preserve-unknown-fields"] == true && len(properties) == 0 {
		object["a"], object[f.text] = f.text, "a"
	}
	return object
}

// plain are texts for those fields that have no other.
var plain = []string{"a", "1", "10.0.0.0/24", "192.0.2.1", "a.example.com", "a/b", "/a", "True", "2020-01-01T00:00:00Z", "http://a", "TCP", "80", "aA", "00:00:00:00:00:00", "1s"}

// string is a text of the attacker where the schema has nothing against it, and else one that it has nothing against.
func (f filler) string(s set) any {
	switch s["format"] {
	case "byte":
		return "eA=="
	case "date-time":
		return "2020-01-01T00:00:00Z"
	}
	most, isBounded := s["maxLength"].(float64)
	pattern, _ := s["pattern"].(string)
	expression, err := regexp.Compile(pattern)
	if err != nil {
		return nil
	}
	for _, text := range append([]string{f.text, "/" + f.text}, plain...) {
		if expression.MatchString(text) && (!isBounded || len(text) <= int(most)) {
			return text
		}
	}
	return nil
}

// parts calls each with what may be added to an object, one after the other: a field as a whole, and where that is not accepted what it has to have, and then
// its own fields. Fields of the object of these names are left out.
func (f filler) parts(s set, path []string, each func(path []string, value any) (accepted bool), without ...string) {
	properties, _ := f.resolved(s)["properties"].(set)
	for _, name := range slices.Sorted(maps.Keys(properties)) {
		if slices.Contains(without, name) {
			continue
		}
		at := append(slices.Clone(path), name)
		property := properties[name].(set)
		if whole := f.value(property, true, len(at)); whole != nil && each(at, whole) {
			continue
		}
		if least := f.value(property, false, len(at)); least != nil {
			each(at, least)
		}
		if len(at) < mostNested {
			f.parts(property, at, each)
		}
	}
}

// mostNested is how deep the fields are that are added one by one.
const mostNested = 3

// mostParts is how many additions to an object are tried.
func mostParts() int {
	if seedtest.Soak() {
		return 400
	}
	return 40
}

// createFilled makes an object of a kind with all fields that its schema has, as far as the API server accepts them, and a status like that. Its texts are
// hostile. It returns how many these are, and the texts of its status.
func (l *largest) createFilled(f filler, g giant, name string) (accepted int, status map[string]string) {
	l.t.Helper()
	in := l.in(g.resource, g.namespace())
	object := runtime.DeepCopyJSON(normal(g.build(min(g.n, 120))).(map[string]any))
	u := &unstructured.Unstructured{Object: object}
	u.SetGroupVersionKind(g.resource.GroupVersion().WithKind(g.kind))
	u.SetName(name)
	u.SetAnnotations(map[string]string{"example.com/any": f.text})
	u.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: f.text, Kind: f.text, Name: f.text, UID: types.UID(f.text)}})
	dry := metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}
	left := mostParts()
	f.parts(f.root, nil, func(path []string, value any) bool {
		_, has, _ := unstructured.NestedFieldNoCopy(u.Object, path...)
		candidate := u.DeepCopy()
		if has && (len(path) == 1 || slices.Contains(servedBy, path[1])) || unstructured.SetNestedField(candidate.Object, runtime.DeepCopyJSONValue(value), path...) != nil {
			return false
		}
		if left--; left < 0 {
			return true
		}
		_, err := in.Create(l.t.Context(), candidate, dry)
		if err == nil {
			u = candidate
		}
		return err == nil
	}, "apiVersion", "kind", "metadata", "status")
	made, err := in.Create(l.t.Context(), u, metav1.CreateOptions{})
	if err != nil {
		l.t.Fatalf("%s: %.1000v", g, err)
	}
	made = l.fillStatus(f, g, made)
	status = map[string]string{}
	shownTexts(made.Object["status"], "status", status)
	return countTexts(made.Object, f.text), status
}

// fillStatus writes the status of an object, field by field, and returns the object.
func (l *largest) fillStatus(f filler, g giant, u *unstructured.Unstructured) *unstructured.Unstructured {
	l.t.Helper()
	properties, _ := f.resolved(f.root)["properties"].(set)
	status, is := properties["status"].(set)
	if !is {
		return u
	}
	left := mostParts()
	f.parts(status, []string{"status"}, func(path []string, value any) bool {
		if left--; left < 0 {
			return true
		}
		change := set{}
		if err := unstructured.SetNestedField(change, runtime.DeepCopyJSONValue(value), path...); err != nil {
			l.t.Fatal(err)
		}
		text, err := json.Marshal(change)
		if err != nil {
			l.t.Fatal(err)
		}
		made, err := l.in(g.resource, g.namespace()).Patch(l.t.Context(), u.GetName(), types.MergePatchType, text, metav1.PatchOptions{}, "status")
		if err == nil {
			u = made
		}
		return err == nil || apierrors.IsNotFound(err) // it has no status of its own
	})
	return u
}

// countTexts is how many texts and keys of a value have a text in them.
func countTexts(value any, text string) (n int) {
	switch value := value.(type) {
	case string:
		if strings.Contains(value, text) {
			n++
		}
	case map[string]any:
		for key, part := range value {
			n += countTexts(key, text) + countTexts(part, text)
		}
	case []any:
		for _, part := range value {
			n += countTexts(part, text)
		}
	}
	return n
}

// A value has each text that the schema does not refuse, in all of its fields or in those that it has to have.
func TestFiller(t *testing.T) {
	properties := set{
		"any": set{"type": "string"}, "short": set{"type": "string", "maxLength": 3.0}, "pattern": set{"type": "string", "pattern": "^[0-9]+$"},
		"none": set{"type": "string", "pattern": "^never$"}, "enum": set{"type": "string", "enum": list{"", "b"}}, "reference": set{"$ref": "#/components/schemas/T"},
		"list": set{"type": "array", "items": set{"allOf": list{set{"$ref": "#/components/schemas/T"}}}}, "map": set{"type": "object", "additionalProperties": set{"type": "string"}},
		"port": set{"x-kubernetes-int-or-string": true}, "count": set{"type": "integer", "minimum": 5.0}, "time": set{"type": "string", "format": "date-time"},
	}
	f := filler{all: set{"T": set{"type": "object", "properties": set{"name": set{"type": "string"}, "more": set{"type": "boolean"}}, "required": list{"name"}}}, text: hostile}
	got := f.value(set{"type": "object", "properties": properties}, true, 0)
	want := set{
		"any": hostile, "short": "a", "pattern": "1", "enum": "b", "reference": set{"name": hostile, "more": false}, "list": list{set{"name": hostile, "more": false}},
		"map": set{hostile: hostile}, "port": int64(80), "count": int64(5), "time": "2020-01-01T00:00:00Z",
	}
	if a, b := fmt.Sprintf("%q", got), fmt.Sprintf("%q", want); a != b {
		t.Errorf("%s, want %s", a, b)
	}
	if n := countTexts(got, hostile); n != 5 {
		t.Errorf("%d texts", n)
	}
	if got := f.value(set{"$ref": "#/components/schemas/T"}, false, 0); fmt.Sprintf("%q", got) != fmt.Sprintf("%q", set{"name": hostile}) {
		t.Errorf("the least is %q", got)
	}
	var tried []string
	f.parts(set{"properties": set{"a": set{"$ref": "#/components/schemas/T"}, "b": set{"type": "string"}}}, nil, func(path []string, value any) bool {
		tried = append(tried, strings.Join(path, ".")+" "+fmt.Sprint(countTexts(value, hostile)))
		return path[0] == "b"
	})
	if want := []string{"a 1", "a 1", "a.more 0", "a.more 0", "a.name 1", "a.name 1", "b 1"}; !slices.Equal(tried, want) {
		t.Errorf("tried are %q, want %q", tried, want)
	}
}
