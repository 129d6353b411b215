// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package api_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/skep-operator/skep/resources/api"
)

// tree is a decoded JSON object.
type tree = map[string]any

// missing is what a difference says of a path of the reference that ours has not.
const missing = "missing"

// difference is one thing in which ours is not as the reference.
type difference struct {
	Path string `json:"path"`
	What string `json:"what"`
}

// comparison walks two definitions side by side.
// Descriptions are each side's own words and not compared; every other keyword is, known to us or not.
type comparison struct {
	// paths counts the properties, items and map values of the reference.
	paths int
	// found counts those among them that ours has with the same type.
	found int
	// retyped are those among them that ours has with another type.
	retyped     []string
	differences []difference
}

func (c *comparison) differ(path, format string, args ...any) {
	c.differences = append(c.differences, difference{Path: path, What: fmt.Sprintf(format, args...)})
}

// definition compares all that is sent to an API server: not the list kind, which it fills in,
// nor annotations and status.
func (c *comparison) definition(reference, ours tree) {
	kind := fmt.Sprint(at(reference, "spec", "names", "kind"))
	c.keyword(kind, "metadata.name", at(reference, "metadata", "name"), at(ours, "metadata", "name"))

	theirs, own := asTree(reference["spec"]), asTree(ours["spec"])
	c.keywords(kind+" names", asTree(theirs["names"]), asTree(own["names"]), "listKind")
	c.keywords(kind, theirs, own, "names", "versions")
	c.versions(kind, asList(theirs["versions"]), asList(own["versions"]))
}

// versions compares the versions of the same name; which of them is the first is no part of it.
func (c *comparison) versions(kind string, reference, ours []any) {
	theirs, own := byName(reference), byName(ours)
	for _, name := range union(theirs, own) {
		path := fmt.Sprintf("%s %s", kind, name)
		switch {
		case own[name] == nil:
			c.paths += pathsOf(asTree(at(asTree(theirs[name]), "schema", "openAPIV3Schema")))
			c.differ(path, missing)
		case theirs[name] == nil:
			c.differ(path, "not in the reference")
		default:
			c.version(path, asTree(theirs[name]), asTree(own[name]))
		}
	}
}

func byName(list []any) tree {
	named := tree{}
	for _, element := range list {
		named[fmt.Sprint(asTree(element)["name"])] = element
	}
	return named
}

func (c *comparison) version(path string, theirs, own tree) {
	c.keywords(path, theirs, own, "schema", "additionalPrinterColumns")
	c.columns(path, asList(theirs["additionalPrinterColumns"]), asList(own["additionalPrinterColumns"]))
	c.below(path+" ", at(theirs, "schema", "openAPIV3Schema"), at(own, "schema", "openAPIV3Schema"))
}

func (c *comparison) columns(path string, reference, ours []any) {
	if len(reference) != len(ours) {
		c.differ(path, "printer columns: %d in the reference, %d in ours", len(reference), len(ours))
		return
	}
	for i := range reference {
		theirs, own := asTree(reference[i]), asTree(ours[i])
		c.keywords(fmt.Sprintf("%s column %v", path, theirs["name"]), theirs, own, "description")
	}
}

// schema compares two schemas and what is below them.
func (c *comparison) schema(path string, reference, ours tree) {
	c.paths++
	if reference["type"] == ours["type"] {
		c.found++
	} else {
		c.retyped = append(c.retyped, path)
	}
	c.keywords(path, reference, ours, "description", "properties", "items", "additionalProperties")
	c.properties(path, reference["properties"], ours["properties"])
	c.below(path+"[]", reference["items"], ours["items"])
	c.below(path+"{}", reference["additionalProperties"], ours["additionalProperties"])
}

func (c *comparison) properties(path string, reference, ours any) {
	theirs, own := asTree(reference), asTree(ours)
	for _, name := range union(theirs, own) {
		c.below(path+"."+name, theirs[name], own[name])
	}
}

// below compares the schemas of a property, of items or of map values, which either side may lack.
func (c *comparison) below(path string, reference, ours any) {
	theirs, inReference := reference.(tree)
	own, inOurs := ours.(tree)
	switch {
	case inReference && inOurs:
		c.schema(path, theirs, own)
	case inReference:
		c.paths += pathsOf(theirs)
		c.differ(path, missing)
	case inOurs:
		c.differ(path, "not in the reference")
	default:
		c.keyword(path, "schema", reference, ours)
	}
}

// pathsOf counts a schema and all that is below it.
func pathsOf(schema tree) int {
	paths := 1
	below := append(slices.Collect(maps.Values(asTree(schema["properties"]))), schema["items"], schema["additionalProperties"])
	for _, child := range below {
		if child, isSchema := child.(tree); isSchema {
			paths += pathsOf(child)
		}
	}
	return paths
}

// keywords compares what two objects say, but for the exceptions.
func (c *comparison) keywords(path string, reference, ours tree, except ...string) {
	for _, key := range union(reference, ours) {
		if !slices.Contains(except, key) {
			c.keyword(path, key, reference[key], ours[key])
		}
	}
}

func (c *comparison) keyword(path, key string, reference, ours any) {
	switch key {
	case "required", "enum", "x-kubernetes-validations":
		reference, ours = asSet(reference), asSet(ours)
	}
	if !reflect.DeepEqual(reference, ours) {
		c.differ(path, "%s: %s in the reference, %s in ours", key, asText(reference), asText(ours))
	}
}

// asSet orders a list whose order means nothing.
func asSet(list any) any {
	values := asList(list)
	if values == nil {
		return list
	}
	return slices.SortedFunc(slices.Values(values), func(a, b any) int {
		return strings.Compare(asText(a), asText(b))
	})
}

func asText(value any) string {
	if value == nil {
		return "nothing"
	}
	text, err := json.Marshal(value)
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// asTree returns an object, nil if it is none.
func asTree(value any) tree {
	object, _ := value.(tree)
	return object
}

// asList returns a list, nil if it is none.
func asList(value any) []any {
	list, _ := value.([]any)
	return list
}

func union(a, b tree) []string {
	keys := tree{}
	maps.Copy(keys, a)
	maps.Copy(keys, b)
	return slices.Sorted(maps.Keys(keys))
}

// at descends into an object.
func at(object tree, keys ...string) any {
	var value any = object
	for _, key := range keys {
		value = asTree(value)[key]
	}
	return value
}

// TestComparisonMissesNothing takes away, one after the other, each thing that a definition says,
// and demands that the comparison with the whole sees it from either side.
func TestComparisonMissesNothing(t *testing.T) {
	// The comparison knows no keyword but those that it walks along, so that these stand for all.
	for _, name := range []string{
		"CiliumBGPPeeringPolicy", "CiliumEndpoint", "CiliumEnvoyConfig", "CiliumLoadBalancerIPPool",
		"CiliumLocalRedirectPolicy", "CiliumNodeConfig",
	} {
		t.Run(name, func(t *testing.T) {
			whole, lacking := definitionOf(t, name, api.Edition{}), definitionOf(t, name, api.Edition{})
			if found := differences(whole, lacking); len(found) != 0 {
				t.Fatalf("a definition differs from itself: %v", found)
			}
			cuts := 0
			cutEach("spec", lacking["spec"], func(path string) {
				cuts++
				if len(differences(whole, lacking)) == 0 {
					t.Errorf("nothing differs when ours lacks %s", path)
				}
				if len(differences(lacking, whole)) == 0 {
					t.Errorf("nothing differs when the reference lacks %s", path)
				}
			})
			t.Logf("%d things taken away", cuts)
		})
	}
}

func differences(reference, ours tree) []difference {
	c := &comparison{}
	c.definition(reference, ours)
	return c.differences
}

// cutEach removes each key below a value, calls try, and puts the key back. Descriptions stay.
func cutEach(path string, value any, try func(path string)) {
	for i, element := range asList(value) {
		cutEach(fmt.Sprintf("%s[%d]", path, i), element, try)
	}
	object := asTree(value)
	for _, key := range union(object, nil) {
		below, kept := path+"."+key, object[key]
		if _, isText := kept.(string); isText && key == "description" {
			continue
		}
		delete(object, key)
		try(below)
		object[key] = kept
		cutEach(below, kept, try)
	}
}
