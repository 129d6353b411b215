// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package api

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
)

// Edition is what definitions depend on beside the kind: the release of the agents that read the objects.
// All editions have the same fields. The zero value is that of the oldest release.
type Edition struct {
	// Label is the version of the schemas that cilium-operator of that release registers; OldestLabel when it is empty.
	Label string
	Admission
}

// Admission says what a definition refuses because agents of the release that runs would not take it, or be misled by it.
// Agents of other releases take the same, so that nothing is refused by itself: the zero value accepts what any release does.
type Admission struct {
	// RefuseRequires refuses selectors in fromRequires and toRequires of network policies.
	// Agents up to 1.18 enforce them; later ones cannot decode them, and read no policy at all then.
	RefuseRequires bool
	// RefuseKafka refuses rules for Kafka and for protocols of proxy extensions in network policies.
	// Agents up to 1.19 enforce them; later ones take a rule without what they know for one that lets everything through.
	RefuseKafka bool
	// RequireSpec refuses network policies without any rule, which are refused from 1.20 on.
	RequireSpec bool
	// FixMaskSize refuses changes of the mask size of a CiliumPodIPPool, which are refused from 1.20 on.
	FixMaskSize bool
	// RefuseIdleServiceOptions refuses options for Services in v2 advertisements that are not about Services,
	// which are refused from 1.19 on.
	RefuseIdleServiceOptions bool
}

// tightening is a keyword of a schema that is stricter in some editions.
type tightening struct {
	isAsked func(Admission) bool
	kinds   []string
	// version of the kind that is stricter; all when it is empty.
	version string
	// paths of the schemas, as the names of properties, with [] for the items of a list.
	paths   []string
	keyword string
	// value takes the place of the keyword's; rules are added to those that are there.
	value any
}

const rulesKeyword = "x-kubernetes-validations"

var policyKinds = []string{"CiliumClusterwideNetworkPolicy", "CiliumNetworkPolicy"}

var tightenings = []tightening{
	{
		func(a Admission) bool { return a.RefuseRequires }, policyKinds, "",
		inPolicies("ingress[].fromRequires", "ingressDeny[].fromRequires", "egress[].toRequires", "egressDeny[].toRequires"),
		"maxItems", int64(0),
	},
	{
		func(a Admission) bool { return a.RefuseKafka }, policyKinds, "",
		inPolicies("ingress[].toPorts[].rules", "egress[].toPorts[].rules"),
		"oneOf", []any{requiredProperty("http"), requiredProperty("dns")},
	},
	{
		func(a Admission) bool { return a.RequireSpec }, policyKinds, "",
		[]string{""}, rulesKeyword, rule("has(self.spec) || has(self.specs)", "spec or specs must be provided"),
	},
	{
		func(a Admission) bool { return a.FixMaskSize }, []string{"CiliumPodIPPool"}, "",
		[]string{"spec.ipv4.maskSize", "spec.ipv6.maskSize"}, rulesKeyword, rule("self == oldSelf", "maskSize is immutable"),
	},
	{
		func(a Admission) bool { return a.RefuseIdleServiceOptions }, []string{"CiliumBGPAdvertisement"}, "v2",
		[]string{"spec.advertisements[]"}, rulesKeyword, rule(
			"self.advertisementType == 'Service' || !has(self.service)",
			"service field is not allowed for non-'Service' advertisementType"),
	},
}

// inPolicies returns paths below each rule of a network policy.
func inPolicies(paths ...string) []string {
	var all []string
	for _, path := range paths {
		all = append(all, "spec."+path, "specs[]."+path)
	}
	return all
}

func requiredProperty(name string) map[string]any {
	return map[string]any{"properties": map[string]any{name: map[string]any{}}, "required": []any{name}}
}

func rule(expression, message string) []any {
	return []any{map[string]any{"rule": expression, "message": message}}
}

// tighten changes the definition of a kind from that of the oldest release to that of an edition.
func (k Kind) tighten(definition map[string]any, a Admission) error {
	for _, t := range tightenings {
		if !t.isAsked(a) || !t.isAbout(k) {
			continue
		}
		for _, path := range t.paths {
			if err := t.apply(definition, path); err != nil {
				return fmt.Errorf("tighten the definition of the kind %s: %w", k.Name, err)
			}
		}
	}
	return nil
}

func (t tightening) isAbout(k Kind) bool {
	for _, name := range t.kinds {
		if name == k.Name {
			return true
		}
	}
	return false
}

func (t tightening) apply(definition map[string]any, path string) error {
	versions, _ := below(definition, "spec")["versions"].([]any)
	for _, v := range versions {
		version, _ := v.(map[string]any)
		if t.version != "" && t.version != version["name"] {
			continue
		}
		schema := schemaAt(below(version, "schema", "openAPIV3Schema"), path)
		if schema == nil {
			return fmt.Errorf("version %v has nothing at %q", version["name"], path)
		}
		value := runtime.DeepCopyJSONValue(t.value)
		if rules, exist := schema[t.keyword].([]any); exist && t.keyword == rulesKeyword {
			value = append(rules, value.([]any)...)
		}
		schema[t.keyword] = value
	}
	return nil
}

// schemaAt returns the schema at a path below another, nil if there is none.
func schemaAt(schema map[string]any, path string) map[string]any {
	if path == "" {
		return schema
	}
	for name := range strings.SplitSeq(path, ".") {
		name, isList := strings.CutSuffix(name, "[]")
		if schema = below(schema, "properties", name); isList {
			schema = below(schema, "items")
		}
	}
	return schema
}

func below(object map[string]any, names ...string) map[string]any {
	for _, name := range names {
		object, _ = object[name].(map[string]any)
	}
	return object
}
