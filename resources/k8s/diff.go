// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package k8s

import (
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
)

// Objects are compared as they are on the wire: maps, lists, texts, numbers and
// booleans, with numbers as int64 or float64.

// fieldPath leads from the root of an object to a field.
type fieldPath []string

func (p fieldPath) String() string { return strings.Join(p, ".") }

// at is the value of a field, nil if it is not there.
func (p fieldPath) at(obj map[string]any) any {
	var value any = obj
	for _, name := range p {
		m, _ := value.(map[string]any)
		value = m[name]
	}
	return value
}

// fieldChange is a field that an edit has set, or removed.
type fieldChange struct {
	path    fieldPath
	from    any // nil if it was not there
	to      any
	removed bool
}

// leaves are the paths of what was changed: of a map that was removed, those of all that was in it.
func (c fieldChange) leaves() (all []fieldPath) {
	of, isMap := c.from.(map[string]any)
	if !c.removed || !isMap || len(of) == 0 {
		return []fieldPath{c.path}
	}
	for _, name := range slices.Sorted(maps.Keys(of)) {
		inside := fieldChange{path: append(slices.Clone(c.path), name), from: of[name], removed: true}
		all = append(all, inside.leaves()...)
	}
	return all
}

// changesOf are the fields in which after differs from before, in the order of their
// paths. Maps are compared field by field, lists as a whole.
func changesOf(before, after map[string]any) []fieldChange {
	var all []fieldChange
	collectChanges(nil, before, after, &all)
	return all
}

func collectChanges(at fieldPath, before, after map[string]any, all *[]fieldChange) {
	names := slices.Sorted(maps.Keys(before))
	for name := range after {
		if _, known := before[name]; !known {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	for _, name := range names {
		path := append(slices.Clone(at), name)
		from, was := before[name]
		to, is := after[name]
		fromMap, fromIsMap := from.(map[string]any)
		toMap, toIsMap := to.(map[string]any)
		switch {
		case !is, toIsMap && len(toMap) == 0 && len(fromMap) > 0:
			*all = append(*all, fieldChange{path: path, from: from, removed: true})
		case toIsMap && len(toMap) > 0 && (fromIsMap || !was):
			collectChanges(path, fromMap, toMap, all)
		case !was || !sameJSON(from, to):
			*all = append(*all, fieldChange{path: path, from: from, to: to})
		}
	}
}

// ofServer are fields of the metadata that the API server sets, whatever is sent.
var ofServer = map[string]bool{
	"resourceVersion": true, "uid": true, "generation": true, "creationTimestamp": true, "managedFields": true,
	"selfLink": true, "deletionTimestamp": true, "deletionGracePeriodSeconds": true, "generateName": true,
}

// isServers reports whether a write of an object, or of its subresource, leaves the
// field to the API server.
func isServers(p fieldPath, subresource string) bool {
	switch {
	case subresource != "":
		return p[0] != subresource
	case p[0] == "metadata":
		return len(p) > 1 && ofServer[p[1]]
	}
	return p[0] == "status" || p[0] == "apiVersion" || p[0] == "kind" || p[0] == "stringData"
}

// shows returns the first of the changes that an object does not show. whole says
// that all of the object was sent, to replace what there was. A field that was removed
// and is back has its default, if other changes are shown; metadata has no defaults.
func shows(stored map[string]any, changes []fieldChange, subresource string, whole bool) (field string, ok bool) {
	var back []fieldChange
	set := false
	for _, c := range changes {
		if isServers(c.path, subresource) {
			continue
		}
		got := c.path.at(stored)
		switch {
		case c.removed && keeps(got, c.from):
			back = append(back, c)
		case c.removed:
		case !holds(got, c.to, whole) || keepsRemoved(got, c.from, c.to):
			return c.path.String(), false
		default:
			set = true
		}
	}
	for _, c := range back {
		if !set || c.path[0] == "metadata" {
			return c.path.String(), false
		}
	}
	return "", true
}

// keeps reports whether a field that was removed is as it was, or a part of it. A
// field with another value has got its default.
func keeps(got, from any) bool {
	gotMap, isMap := got.(map[string]any)
	fromMap, wasMap := from.(map[string]any)
	if !isMap || !wasMap {
		return !isEmpty(got) && sameJSON(got, from)
	}
	for name, value := range fromMap {
		if keeps(gotMap[name], value) {
			return true
		}
	}
	return false
}

// keepsRemoved reports whether a list still has an object that was taken off it.
func keepsRemoved(got, from, to any) bool {
	gotList, _ := got.([]any)
	fromList, _ := from.([]any)
	toList, isList := to.([]any)
	if !isList {
		return false
	}
	return slices.ContainsFunc(fromList, func(v any) bool {
		in := func(list []any) bool {
			return slices.ContainsFunc(list, func(w any) bool { return sameJSON(v, w) })
		}
		return !in(toList) && in(gotList)
	})
}

// holds reports whether a value has all of what was sent. The API server may add to
// maps, and, unless the whole was sent to replace what there was, webhooks may add
// objects to lists. It leaves out what is empty, and writes quantities and times in
// its own way.
func holds(got, sent any, whole bool) bool {
	if got == nil {
		return isEmpty(sent)
	}
	switch sent := sent.(type) {
	case nil:
		return true // asks for the default
	case map[string]any:
		m, ok := got.(map[string]any)
		if !ok {
			return false
		}
		for name, value := range sent {
			if !holds(m[name], value, whole) {
				return false
			}
		}
		return true
	case []any:
		list, ok := got.([]any)
		return ok && holdsList(list, sent, whole)
	}
	return sameScalar(got, sent)
}

// holdsList reports whether a list has what was sent, in its order.
func holdsList(got, sent []any, whole bool) bool {
	more := len(got) > len(sent)
	if more && (whole || len(sent) == 0) {
		return false
	}
	next := 0
	for _, value := range got {
		if next < len(sent) && holds(value, sent[next], whole) {
			next++
			continue
		}
		if _, isMap := value.(map[string]any); !isMap {
			return false // nothing is added to lists of texts and numbers
		}
	}
	return next == len(sent)
}

func isEmpty(v any) bool {
	switch v := v.(type) {
	case nil:
		return true
	case map[string]any:
		for _, value := range v {
			if !isEmpty(value) {
				return false
			}
		}
		return true
	case []any:
		return len(v) == 0
	}
	return reflect.ValueOf(v).IsZero()
}

// sameJSON reports whether two values that were read from JSON are equal. reflect.DeepEqual remembers each pair that it has compared: some 100 bytes for each element of a list.
func sameJSON(a, b any) bool {
	switch a := a.(type) {
	case map[string]any:
		b, is := b.(map[string]any)
		return is && (a == nil) == (b == nil) && maps.EqualFunc(a, b, sameJSON)
	case []any:
		b, is := b.([]any)
		return is && (a == nil) == (b == nil) && slices.EqualFunc(a, b, sameJSON)
	case string, int64, float64, bool, nil:
		return a == b
	}
	return reflect.DeepEqual(a, b)
}

func sameScalar(a, b any) bool {
	if sameJSON(a, b) {
		return true
	}
	if x, ok := number(a); ok {
		y, ok := number(b)
		return ok && x == y
	}
	x, isText := a.(string)
	y, both := b.(string)
	return isText && both && (sameTime(x, y) || sameQuantity(x, y))
}

func number(v any) (float64, bool) {
	switch v := v.(type) {
	case int64:
		return float64(v), true
	case float64:
		return v, true
	}
	return 0, false
}

func sameTime(a, b string) bool {
	x, err := time.Parse(time.RFC3339Nano, a)
	if err != nil {
		return false
	}
	y, err := time.Parse(time.RFC3339Nano, b)
	return err == nil && x.Equal(y)
}

func sameQuantity(a, b string) bool {
	x, err := resource.ParseQuantity(a)
	if err != nil {
		return false
	}
	y, err := resource.ParseQuantity(b)
	return err == nil && x.Cmp(y) == 0
}
