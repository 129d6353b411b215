// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package k8s

import (
	"encoding/json"
	"maps"
	"reflect"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// merger applies the edit of a typed object to the JSON object it was decoded from.
// Each method has the typed value after the edit (invalid where there is none), the
// JSON object, and the typed object before and after the edit as JSON.
type merger struct {
	arrays map[uintptr]bool // backing arrays of the lists that edit was given
}

// collectArrays notes the backing arrays of all lists in a value.
func (m merger) collectArrays(v reflect.Value) {
	switch v.Kind() {
	case reflect.Pointer, reflect.Interface:
		if !v.IsNil() {
			m.collectArrays(v.Elem())
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				m.collectArrays(v.Field(i))
			}
		}
	case reflect.Map:
		for it := v.MapRange(); it.Next(); {
			m.collectArrays(it.Value())
		}
	case reflect.Slice:
		if v.Len() > 0 {
			m.arrays[v.Pointer()] = true
		}
		for i := range v.Len() {
			m.collectArrays(v.Index(i))
		}
	}
}

// mergeMap merges a struct or map. keep leaves fields that are missing after the edit.
func (m merger) mergeMap(v reflect.Value, raw, before, after map[string]any, keep bool) map[string]any {
	merged := maps.Clone(raw)
	for name, from := range before {
		if _, is := after[name]; is || keep {
			continue
		}
		fromMap, _ := from.(map[string]any)
		rawMap, _ := raw[name].(map[string]any)
		delete(merged, name)
		if fromMap != nil && field(v, name).Kind() == reflect.Struct { // left out as empty, not as nil
			if rest := m.mergeMap(field(v, name), rawMap, fromMap, nil, false); len(rest) > 0 {
				merged[name] = rest
			}
		}
	}
	for name, to := range after {
		from, was := before[name]
		value := field(v, name)
		if !was || !sameValue(value, from, to) {
			merged[name] = m.mergeValue(value, raw[name], from, to, keep)
		}
	}
	return merged
}

func (m merger) mergeValue(v reflect.Value, raw, before, after any, keep bool) any {
	switch after := after.(type) {
	case map[string]any:
		if raw, ok := raw.(map[string]any); ok {
			before, _ := before.(map[string]any)
			return m.mergeMap(v, raw, before, after, keep)
		}
	case []any:
		raw, _ := raw.([]any)
		if before, _ := before.([]any); len(raw) == len(before) {
			return m.mergeList(v, raw, before, after)
		}
	}
	return after
}

// mergeList merges elements with those they were made of. In a new list, a field that
// is left out keeps its value.
func (m merger) mergeList(v reflect.Value, raw, before, after []any) []any {
	v = indirect(v)
	isNew := v.Kind() != reflect.Slice || v.Len() == 0 || !m.arrays[v.Pointer()]
	origins := origins(before, after, isNew)
	merged := slices.Clone(after)
	for i, origin := range origins {
		if origin < 0 {
			continue
		}
		var element reflect.Value
		if v.Kind() == reflect.Slice && i < v.Len() {
			element = v.Index(i)
		}
		if sameValue(element, before[origin], after[i]) {
			merged[i] = raw[origin]
			continue
		}
		merged[i] = m.mergeValue(element, raw[origin], before[origin], after[i], isNew)
	}
	return merged
}

// origins finds for each element of a list the one that it was made of, -1 for none:
// the same, one that has the same fields and more, one of the same identity, or one at
// the same place with a field in common. Each is the origin of one element at most.
func origins(before, after []any, isNew bool) []int {
	of := slices.Repeat([]int{-1}, len(after))
	taken := make([]bool, len(before))
	rules := []func(from, to any, samePlace bool) bool{
		func(from, to any, _ bool) bool { return sameJSON(from, to) },
		func(from, to any, _ bool) bool { return isNew && isPartOf(from, to) },
		func(from, to any, _ bool) bool { return sameIdentity(from, to) },
		func(from, to any, samePlace bool) bool {
			return !isNew && samePlace && len(before) == len(after) && haveCommonField(from, to)
		},
	}
	for _, matches := range rules {
		for i, to := range after {
			for n := 0; n < len(before) && of[i] < 0; n++ {
				j := (i + n) % len(before) // the same place first
				if !taken[j] && matches(before[j], to, i == j) {
					of[i], taken[j] = j, true
				}
			}
		}
	}
	return of
}

// isPartOf reports whether an object has all fields of another one.
func isPartOf(from, to any) bool {
	toMap, isMap := to.(map[string]any)
	fromMap, wasMap := from.(map[string]any)
	if !isMap || !wasMap {
		return sameJSON(from, to)
	}
	for name, value := range toMap {
		if !isPartOf(fromMap[name], value) {
			return false
		}
	}
	return len(toMap) > 0
}

// identities are the fields that tell the elements of a list apart, in the kinds of
// Kubernetes.
var identities = []string{"name", "type", "key", "uid", "ip", "hostname", "cidr", "containerPort", "port", "mountPath", "devicePath"}

// sameIdentity compares the first of the identities that one of two objects has.
func sameIdentity(from, to any) bool {
	fromMap, _ := from.(map[string]any)
	toMap, _ := to.(map[string]any)
	for _, name := range identities {
		a, b := fromMap[name], toMap[name]
		if a != nil || b != nil {
			return sameJSON(a, b)
		}
	}
	return false
}

func haveCommonField(from, to any) bool {
	fromMap, _ := from.(map[string]any)
	toMap, _ := to.(map[string]any)
	for name, value := range toMap {
		if was, ok := fromMap[name]; ok && sameJSON(was, value) {
			return true
		}
	}
	return false
}

// sameValue reports whether two values mean the same: of quantities and times, not
// the spelling counts.
func sameValue(v reflect.Value, a, b any) bool {
	if v = indirect(v); v.IsValid() {
		switch v.Interface().(type) {
		case resource.Quantity, metav1.Time, metav1.MicroTime:
			return sameScalar(a, b)
		}
	}
	return sameJSON(a, b)
}

var marshaler = reflect.TypeFor[json.Marshaler]()

// pruneUnset removes fields that are encoded although they are not set: structs with an
// encoding of their own, such as the target port of a Service, for which the API server
// has a default.
func pruneUnset(v reflect.Value, content any) {
	v = indirect(v)
	switch content := content.(type) {
	case map[string]any:
		for name, value := range content {
			f := field(v, name)
			if v.Kind() == reflect.Struct && f.Kind() == reflect.Struct && f.IsZero() && reflect.PointerTo(f.Type()).Implements(marshaler) {
				delete(content, name)
			} else if f.IsValid() {
				pruneUnset(f, value)
			}
		}
	case []any:
		for i, value := range content {
			if v.Kind() == reflect.Slice && i < v.Len() {
				pruneUnset(v.Index(i), value)
			}
		}
	}
}

// indirect follows pointers and interfaces.
func indirect(v reflect.Value) reflect.Value {
	for v.Kind() == reflect.Pointer || v.Kind() == reflect.Interface {
		v = v.Elem()
	}
	return v
}

// field is the value of a JSON field, invalid where there is none.
func field(v reflect.Value, name string) reflect.Value {
	v = indirect(v)
	switch v.Kind() {
	case reflect.Map:
		if v.Type().Key().Kind() == reflect.String {
			return v.MapIndex(reflect.ValueOf(name).Convert(v.Type().Key()))
		}
	case reflect.Struct:
		for i := range v.NumField() {
			f := v.Type().Field(i)
			tag, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			switch {
			case !f.IsExported() || tag == "-":
			case tag == name, tag == "" && !f.Anonymous && f.Name == name:
				return v.Field(i)
			case tag == "" && f.Anonymous:
				if found := field(v.Field(i), name); found.IsValid() {
					return found
				}
			}
		}
	}
	return reflect.Value{}
}
