// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package derivative

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/skep-operator/skep/resources/cluster/release"
	"github.com/skep-operator/skep/resources/domain/policy"
	"github.com/skep-operator/skep/resources/networkpolicy"
	"github.com/skep-operator/skep/runtime/printable"
)

const (
	kindLabel = "io.cilium.network.policy.kind"
	derived   = "derivative"
)

// nameOf is the name of the policy that is derived from one.
func nameOf(parent, uid string) string { return parent + "-groups-" + uid }

// direction is a list of a rule whose entries may refer to groups.
type direction struct{ list, groups, cidrs string }

var directions = []direction{
	{"ingress", "fromGroups", "fromCIDRSet"},
	{"ingressDeny", "fromGroups", "fromCIDRSet"},
	{"egress", "toGroups", "toCIDRSet"},
	{"egressDeny", "toGroups", "toCIDRSet"},
}

// group is one of a provider.
type group struct {
	provider string // "" for a group of no provider, which has no addresses
	query    string // as JSON
}

// agentChecks is what agents check of a rule: their release, and what they support.
type agentChecks struct {
	release  release.Release
	features policy.Features
}

// rulesOf are copies of the rules of a policy as agents read them: spec, and then specs. The error says that agents do not
// accept one.
func rulesOf(parent *unstructured.Unstructured, on agentChecks) (rules []map[string]any, err error) {
	add := func(field string, value any) error {
		rule, err := checkedRule(parent, value, on)
		if err != nil {
			return &invalidError{parent.GetKind(), field, shorten(err.Error())}
		}
		rules = append(rules, rule)
		return nil
	}
	if spec := parent.Object["spec"]; spec != nil {
		if err := add("spec", spec); err != nil {
			return nil, err
		}
	}
	specs, ok := parent.Object["specs"].([]any)
	if !ok && parent.Object["specs"] != nil {
		return nil, &invalidError{parent.GetKind(), "specs", "it is no list"}
	}
	for _, spec := range specs {
		if err := add("specs", spec); err != nil {
			return nil, err
		}
	}
	return rules, nil
}

// maxText is the most bytes of what a status says of a policy or a look-up: a finding has the value that it is about.
const maxText = 1 << 10

func shorten(text string) string { return printable.Cut(text, maxText) }

// invalidError says that agents do not accept a policy.
type invalidError struct{ kind, field, text string }

func (e *invalidError) Error() string {
	return fmt.Sprintf("Invalid %s %s: %s", e.kind, e.field, e.text)
}

func checkedRule(parent *unstructured.Unstructured, value any, on agentChecks) (map[string]any, error) {
	raw, err := json.Marshal(value)
	if err != nil {
		return nil, err
	}
	rule, err := networkpolicy.DecodeRule(raw)
	if err != nil {
		return nil, err
	}
	if parent.GetNamespace() != "" && rule.NodeSelector != nil {
		return nil, errors.New("rule cannot have NodeSelector")
	}
	if text := policy.NewChecker(rule).Check(networkpolicy.DialectOf(on.release)).First(on.features); text != "" {
		return nil, errors.New(text)
	}
	content, ok := value.(map[string]any)
	if !ok {
		return nil, errors.New("it is no object")
	}
	return runtime.DeepCopyJSON(content), nil
}

// entriesOf calls f for each entry of a rule.
func entriesOf(rule map[string]any, f func(direction, map[string]any)) {
	for _, d := range directions {
		entries, _ := rule[d.list].([]any)
		for _, e := range entries {
			if entry, ok := e.(map[string]any); ok {
				f(d, entry)
			}
		}
	}
}

// groupsOf are the groups that rules refer to, each once.
func groupsOf(rules []map[string]any) (groups []group) {
	for _, rule := range rules {
		entriesOf(rule, func(d direction, entry map[string]any) {
			list, _ := entry[d.groups].([]any)
			for _, g := range list {
				groups = append(groups, parseGroup(g)...)
			}
		})
	}
	slices.SortFunc(groups, func(a, b group) int { return strings.Compare(a.provider+" "+a.query, b.provider+" "+b.query) })
	return slices.Compact(groups)
}

// parseGroup are the parts of an element of a list of groups, one for each provider that it names.
func parseGroup(value any) (parts []group) {
	content, _ := value.(map[string]any)
	for _, provider := range slices.Sorted(maps.Keys(content)) {
		if content[provider] == nil {
			continue
		}
		query, _ := json.Marshal(content[provider]) // of values that were decoded from JSON
		parts = append(parts, group{provider, string(query)})
	}
	return parts
}

// maxAddresses is how many addresses the entries of a policy may lead to together: more do not fit in an object of the API server.
const maxAddresses = 50_000

// tooMany reports whether the derived policy would have more addresses than there may be: many entries may refer to one group.
func tooMany(rules []map[string]any, addresses map[group][]netip.Addr) bool {
	n := 0
	for _, rule := range rules {
		entriesOf(rule, func(d direction, entry map[string]any) {
			if n > maxAddresses {
				return
			}
			groups, _ := entry[d.groups].([]any)
			for _, g := range groups {
				for _, part := range parseGroup(g) {
					n += len(addresses[part])
				}
			}
		})
	}
	return n > maxAddresses
}

// derive returns the derived policy. addresses has those of all groups.
func derive(parent *unstructured.Unstructured, rules []map[string]any, addresses map[group][]netip.Addr) *unstructured.Unstructured {
	specs := make([]any, len(rules))
	for i, rule := range rules {
		rewriteSelectors(rule, parent.GetNamespace())
		entriesOf(rule, func(d direction, entry map[string]any) { replaceGroups(d, entry, addresses) })
		setDefaultDeny(rule)
		rule["labels"] = labelsOf(rule["labels"], parent)
		specs[i] = rule
	}
	u := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": parent.GetAPIVersion(), "kind": parent.GetKind(), "specs": specs,
	}}
	u.SetName(nameOf(parent.GetName(), string(parent.GetUID())))
	u.SetNamespace(parent.GetNamespace())
	u.SetLabels(map[string]string{networkpolicy.ParentUIDLabel: string(parent.GetUID()), kindLabel: derived})
	u.SetOwnerReferences([]metav1.OwnerReference{{
		APIVersion: parent.GetAPIVersion(), Kind: parent.GetKind(), Name: parent.GetName(), UID: parent.GetUID(),
	}})
	return u
}

// replaceGroups puts CIDRs in the place of the groups of an entry. A list without CIDRs stays present: it selects no peer,
// where an absent one would select all.
func replaceGroups(d direction, entry map[string]any, addresses map[group][]netip.Addr) {
	groups, _ := entry[d.groups].([]any)
	if len(groups) == 0 {
		return
	}
	delete(entry, d.groups)
	own, _ := entry[d.cidrs].([]any)
	cidrs := append([]any{}, own...)
	var all []netip.Addr
	for _, g := range groups {
		for _, part := range parseGroup(g) {
			all = append(all, addresses[part]...)
		}
	}
	for _, prefix := range prefixesOf(all) {
		cidrs = append(cidrs, map[string]any{"cidr": prefix.String()})
	}
	entry[d.cidrs] = cidrs
}

// setDefaultDeny says for each direction whether other traffic is dropped, as agents do where the rule does not say.
func setDefaultDeny(rule map[string]any) {
	old, _ := rule["enableDefaultDeny"].(map[string]any)
	deny := map[string]any{"ingress": has(rule, "ingress", "ingressDeny"), "egress": has(rule, "egress", "egressDeny")}
	for name, value := range old {
		if value != nil {
			deny[name] = value
		}
	}
	rule["enableDefaultDeny"] = deny
}

func has(rule map[string]any, lists ...string) bool {
	return slices.ContainsFunc(lists, func(name string) bool {
		list, _ := rule[name].([]any)
		return len(list) > 0
	})
}

// labelsOf are the labels of a rule: its own, and those of its policy.
func labelsOf(own any, parent *unstructured.Unstructured) []any {
	labels, _ := own.([]any)
	add := func(key, value string) {
		labels = append(labels, map[string]any{"key": "io.cilium.k8s.policy." + key, "source": "k8s", "value": value})
	}
	add("derived-from", parent.GetKind())
	add("name", parent.GetName())
	if parent.GetNamespace() != "" {
		add("namespace", parent.GetNamespace())
	}
	add("uid", string(parent.GetUID()))
	return labels
}

// isDerivedFrom reports whether a stored policy is derived from one: by its labels and its owner.
func isDerivedFrom(u, parent *unstructured.Unstructured) bool {
	owned := slices.ContainsFunc(u.GetOwnerReferences(), func(o metav1.OwnerReference) bool { return o.UID == parent.GetUID() })
	return owned && u.GetLabels()[networkpolicy.ParentUIDLabel] == string(parent.GetUID()) && u.GetLabels()[kindLabel] == derived
}

// apply sets the fields of a stored policy that differ from the desired one. Its status stays.
func apply(stored, want *unstructured.Unstructured) {
	stored.SetLabels(want.GetLabels())
	stored.SetOwnerReferences(want.GetOwnerReferences())
	delete(stored.Object, "spec")
	stored.Object["specs"] = want.Object["specs"]
}

// mayHaveGroups reports whether a policy has groups, or rules of which that is not known.
func mayHaveGroups(u *unstructured.Unstructured) bool {
	raw, err := json.Marshal(map[string]any{"spec": u.Object["spec"], "specs": u.Object["specs"]})
	var p networkpolicy.Policy
	if err == nil {
		err = json.Unmarshal(raw, &p)
		p.Trim()
	}
	has, unknown := p.HasGroups()
	return err != nil || has || unknown
}
