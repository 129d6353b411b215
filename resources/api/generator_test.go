// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package api_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"time"
)

// writtenAlways are the fields that need no value to be written, beside required ones.
var writtenAlways = []string{
	"CiliumLoadBalancerIPPool.spec",
	"CiliumNode.status.azure.interfaces[].gateway",
	"CiliumEndpointSlice.endpoints[].encryption",
	"CiliumEnvoyConfig.spec.services[].listener",
	"CiliumClusterwideEnvoyConfig.spec.services[].listener",
}

// generator makes objects out of schemas. They have no zero values, no empty lists and no empty objects,
// but otherwise whatever the types of the schema allow; patterns and formats are not kept, but for those of times.
type generator struct {
	rand *rand.Rand
	// omit is the chance that a property which is not required is left out.
	omit float64
}

// objects makes one object of each version of a definition.
func (g generator) objects(definition tree) []tree {
	kind := at(definition, "spec", "names", "kind").(string)
	var objects []tree
	for _, version := range asList(at(definition, "spec", "versions")) {
		version := asTree(version)
		object := asTree(g.value(kind, asTree(at(version, "schema", "openAPIV3Schema"))))
		object["apiVersion"] = "cilium.io/" + version["name"].(string)
		object["kind"] = kind
		object["metadata"] = tree{
			"name": "a", "namespace": "b", "uid": "c", "resourceVersion": "1", "generation": int64(2),
			"labels": tree{"d": "e"}, "annotations": tree{"f": "g"}, "creationTimestamp": "2026-01-01T00:00:00Z",
			"ownerReferences": []any{tree{"apiVersion": "v1", "kind": "Pod", "name": "h", "uid": "i"}},
		}
		objects = append(objects, object)
	}
	return objects
}

func (g generator) value(path string, schema tree) any {
	switch {
	case schema["x-kubernetes-preserve-unknown-fields"] == true:
		return g.anything(3)
	case schema["x-kubernetes-int-or-string"] == true:
		if g.rand.IntN(2) == 0 {
			return g.text()
		}
		return g.integer(math.MinInt32, math.MaxInt32)
	case schema["enum"] != nil:
		choices := asList(schema["enum"])
		return choices[g.rand.IntN(len(choices))]
	}
	switch kind := schema["type"]; kind {
	case "object":
		return g.object(path, schema)
	case "array":
		if schema["maxItems"] == int64(0) {
			return []any{}
		}
		items := make([]any, 1+g.rand.IntN(2))
		for i := range items {
			items[i] = g.value(path+"[]", asTree(schema["items"]))
		}
		return items
	case "string":
		if schema["format"] == "date-time" {
			return time.Unix(g.rand.Int64N(math.MaxInt32), 0).UTC().Format(time.RFC3339)
		}
		return g.text()
	case "integer":
		lowest, highest := int64(math.MinInt64), int64(math.MaxInt64)
		if schema["format"] == "int32" {
			lowest, highest = math.MinInt32, math.MaxInt32
		}
		if bound, bounded := schema["minimum"].(int64); bounded {
			lowest = bound
		}
		if bound, bounded := schema["maximum"].(int64); bounded {
			highest = bound
		}
		return g.integer(lowest, highest)
	case "boolean":
		return true
	default:
		panic(fmt.Sprintf("%s is of type %v", path, kind))
	}
}

func (g generator) object(path string, schema tree) tree {
	object := tree{}
	properties := asTree(schema["properties"])
	names := union(properties, nil)
	for _, name := range names {
		below := path + "." + name
		required := slices.Contains(asList(schema["required"]), any(name)) || slices.Contains(writtenAlways, below)
		if required || g.rand.Float64() >= g.omit {
			object[name] = g.value(below, asTree(properties[name]))
		}
	}
	if values := asTree(schema["additionalProperties"]); values != nil {
		for range 1 + g.rand.IntN(2) {
			object[g.text()] = g.value(path+"{}", values)
		}
	}
	if len(object) == 0 && len(names) > 0 {
		name := names[g.rand.IntN(len(names))]
		object[name] = g.value(path+"."+name, asTree(properties[name]))
	}
	return object
}

// anything is an object that no schema describes.
func (g generator) anything(depth int) any {
	object := tree{"@type": g.text()}
	for range 1 + g.rand.IntN(4) {
		var value any
		switch choice := g.rand.IntN(7); {
		case choice == 0:
			value = nil
		case choice == 1:
			value = g.rand.IntN(2) == 0
		case choice == 2:
			value = g.rand.Int64() - math.MaxInt64/2
		case choice == 3:
			value = float64(g.rand.IntN(1000)) + 0.5
		case choice == 4 && depth > 0:
			value = g.anything(depth - 1)
		case choice == 5 && depth > 0:
			value = []any{g.anything(depth - 1), []any{}, ""}
		default:
			value = g.text()
		}
		object[g.text()] = value
	}
	return object
}

// integer is any number between two bounds but 0.
func (g generator) integer(lowest, highest int64) int64 {
	for {
		number := int64(g.rand.Uint64())
		if lowest > math.MinInt64 || highest < math.MaxInt64 {
			number = lowest + int64(g.rand.Uint64N(uint64(highest)-uint64(lowest)))
		}
		if number != 0 {
			return number
		}
	}
}

// text is a string that is not empty and that needs care in JSON.
func (g generator) text() string {
	letters := []rune(`abcxyz09-._/:"\<&>é世 ` + "\n\u2028")
	text := make([]rune, 1+g.rand.IntN(12))
	for i := range text {
		text[i] = letters[g.rand.IntN(len(letters))]
	}
	return string(text)
}
