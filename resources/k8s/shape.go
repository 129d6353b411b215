// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package k8s

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// shape is which fields a definition has in a value. The API server drops the others. A nil shape has all there can be.
type shape struct {
	open       bool // fields that are not listed are kept, too
	fields     map[string]*shape
	hasEntries bool   // of any name, beside the fields
	entries    *shape // what each of them has
	items      *shape // of a list
}

// noFields is the shape of texts, numbers and of maps of which nothing is listed.
var noFields = func() *shape {
	s := &shape{}
	s.items = s
	return s
}()

// of is the shape of a field, and the name of the field in messages. It reports whether there is such a field.
func (s *shape) of(name string) (field *shape, spelled string, ok bool) {
	if field, ok = s.fields[name]; ok {
		return field, name, true
	}
	if s.hasEntries {
		return s.entries, "{}", true
	}
	return nil, name, s.open
}

// visit calls lacks for each field in a value that the shape lacks. lacks may delete it.
func (s *shape) visit(value any, path fieldPath, lacks func(in map[string]any, name string, path fieldPath)) {
	if s == nil {
		return
	}
	switch value := value.(type) {
	case map[string]any:
		for name, v := range value {
			field, spelled, ok := s.of(name)
			if ok {
				field.visit(v, append(path, spelled), lacks)
			} else {
				lacks(value, name, append(path, spelled))
			}
		}
	case []any:
		for _, v := range value {
			s.items.visit(v, append(path, "[]"), lacks)
		}
	}
}

// lackedOf are the paths of the fields of an object that the shape lacks, such as spec.of{}.parts[].kind.
func (s *shape) lackedOf(object map[string]any) (paths []string) {
	s.visit(object, nil, func(_ map[string]any, _ string, path fieldPath) {
		text := strings.NewReplacer(".[]", "[]", ".{}", "{}").Replace(path.String())
		if !slices.Contains(paths, text) {
			paths = append(paths, text)
		}
	})
	slices.Sort(paths)
	return paths
}

// pruned is a copy of an object without the fields that the shape lacks.
func (s *shape) pruned(object map[string]any) map[string]any {
	object = runtime.DeepCopyJSON(object)
	s.visit(object, nil, func(in map[string]any, name string, _ fieldPath) { delete(in, name) })
	return object
}

// publishedSchema is a schema as the API server publishes it, and as definitions have it.
type publishedSchema struct {
	Ref        string                      `json:"$ref"`
	AllOf      []publishedSchema           `json:"allOf"`
	Properties map[string]*publishedSchema `json:"properties"`
	Entries    json.RawMessage             `json:"additionalProperties"` // a schema, or whether there are any
	Items      *publishedSchema            `json:"items"`
	Open       bool                        `json:"x-kubernetes-preserve-unknown-fields"`
}

// isElsewhere reports whether a value is described in another schema: metadata, and all of built-in kinds.
func (p *publishedSchema) isElsewhere() bool {
	return p.Ref != "" || slices.ContainsFunc(p.AllOf, func(part publishedSchema) bool { return part.Ref != "" })
}

// shape is the shape of a schema. In an open list, the items are open, too.
func (p *publishedSchema) shape(open bool) *shape {
	if p == nil || p.isElsewhere() {
		return nil
	}
	s := &shape{open: open || p.Open}
	s.entries, s.hasEntries = p.entries()
	switch {
	case len(p.Properties) > 0 || s.hasEntries || p.Items != nil:
	case s.open:
		return nil
	default:
		return noFields
	}
	s.items = noFields
	if p.Items != nil || s.open {
		s.items = p.Items.shape(s.open)
	}
	s.fields = make(map[string]*shape, len(p.Properties))
	for name, field := range p.Properties {
		s.fields[name] = field.shape(false)
	}
	return s
}

// entries is the shape of the entries of a map. Where a schema has them without a schema of their own, their fields are dropped.
func (p *publishedSchema) entries() (of *shape, has bool) {
	text := bytes.TrimSpace(p.Entries)
	if len(text) == 0 || bytes.Equal(text, []byte("null")) {
		return nil, false
	}
	if text[0] != '{' {
		return noFields, true
	}
	var each publishedSchema
	if json.Unmarshal(text, &each) != nil {
		return nil, true
	}
	return each.shape(false), true
}

// shapeIn finds a kind in the OpenAPI document of its group and version. It is nil if the document does not describe it.
func shapeIn(document []byte, kind schema.GroupVersionKind) (*shape, error) {
	var all struct {
		Components struct {
			Schemas map[string]json.RawMessage `json:"schemas"`
		} `json:"components"`
	}
	if err := json.Unmarshal(document, &all); err != nil {
		return nil, fmt.Errorf("decoding the schemas of %s: %w", kind.GroupVersion(), err)
	}
	for _, text := range all.Components.Schemas {
		var is struct {
			Of []schema.GroupVersionKind `json:"x-kubernetes-group-version-kind"`
		}
		if json.Unmarshal(text, &is) != nil || !slices.Contains(is.Of, kind) {
			continue
		}
		var p publishedSchema
		if err := json.Unmarshal(text, &p); err != nil {
			return nil, fmt.Errorf("decoding the schema of %s: %w", kind, err)
		}
		if _, described := p.Properties["metadata"]; !described { // only that it is an object
			return nil, nil
		}
		return p.shape(false), nil
	}
	return nil, nil
}
