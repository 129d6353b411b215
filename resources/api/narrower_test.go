// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package api_test

import (
	"fmt"
	"reflect"
	"slices"
)

// narrowing looks for keywords of ours that refuse, or change, what a reference may accept.
type narrowing struct{ comparison }

func (n *narrowing) definition(reference, ours tree) {
	kind := fmt.Sprint(at(reference, "spec", "names", "kind"))
	own := byName(asList(at(ours, "spec", "versions")))
	for name, version := range byName(asList(at(reference, "spec", "versions"))) {
		theirs := asTree(at(asTree(version), "schema", "openAPIV3Schema"))
		n.schema(fmt.Sprintf("%s %s ", kind, name), theirs, asTree(at(asTree(own[name]), "schema", "openAPIV3Schema")))
	}
}

func (n *narrowing) schema(path string, reference, ours tree) {
	for _, key := range union(ours, nil) {
		if isNarrower(key, reference[key], ours[key]) {
			n.differ(path, "%s: %s in the reference, %s in ours", key, asText(reference[key]), asText(ours[key]))
		}
	}
	theirs, own := asTree(reference["properties"]), asTree(ours["properties"])
	for name := range theirs {
		if asTree(own[name]) != nil {
			n.schema(path+"."+name, asTree(theirs[name]), asTree(own[name]))
		}
	}
	for key, mark := range map[string]string{"items": "[]", "additionalProperties": "{}"} {
		if theirs, own := asTree(reference[key]), asTree(ours[key]); theirs != nil && own != nil {
			n.schema(path+mark, theirs, own)
		}
	}
}

// isNarrower reports whether a keyword of ours may refuse what the reference does not. It need not be sure.
func isNarrower(key string, reference, ours any) bool {
	if reflect.DeepEqual(reference, ours) {
		return false
	}
	switch key {
	case "description", "properties", "items", "additionalProperties":
		return false
	case "x-kubernetes-map-type", "x-kubernetes-preserve-unknown-fields":
		return false // about merges and pruning
	case "required", "x-kubernetes-validations":
		return !isSubset(ours, reference)
	case "enum", "oneOf", "anyOf":
		return reference == nil || !isSubset(reference, ours)
	case "minimum", "minLength", "minItems":
		return reference == nil || asFloat(ours) > asFloat(reference)
	case "maximum", "maxLength", "maxItems":
		return reference == nil || asFloat(ours) < asFloat(reference)
	}
	return true
}

func isSubset(part, whole any) bool {
	for _, element := range asList(part) {
		if !slices.ContainsFunc(asList(whole), func(other any) bool { return reflect.DeepEqual(element, other) }) {
			return false
		}
	}
	return true
}

func asFloat(number any) float64 {
	switch number := number.(type) {
	case int64:
		return float64(number)
	case float64:
		return number
	}
	return 0
}
