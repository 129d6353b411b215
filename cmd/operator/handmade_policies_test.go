// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package main

import (
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	v2 "github.com/skep-operator/skep/resources/api/v2"
)

// policyKinds are the network policies, by their resources.
var policyKinds = map[schema.GroupVersionResource]string{
	v2.CiliumNetworkPolicyResource: "CiliumNetworkPolicy", v2.CiliumClusterwideNetworkPolicyResource: "CiliumClusterwideNetworkPolicy",
}

// handGroup is the group that healthy policies refer to, which has one member.
const (
	handGroup  = "by-hand"
	handMember = "192.0.2.7"
)

// handRule is a rule that agents do not understand: it has a group.
var handRule = `{"endpointSelector":{"matchLabels":{"app":"x"}},"egress":[{"toGroups":` + inGroups(handGroup) + `,"toPorts":[{"ports":[{"port":"443","protocol":"TCP"}]}]}]}`

// policyOddities are those of policies, which all have groups before. A derived policy stays unless frees is set.
var policyOddities = []oddity{
	// Rules that cannot be read.
	{what: "spec is a text", patch: `{"spec":"x"}`, named: true},
	{what: "spec is a list", patch: `{"spec":[1]}`, named: true},
	{what: "specs are an object", patch: `{"specs":{"a":1}}`, named: true},
	{what: "a number among the rules", patch: `{"specs":[7,` + handRule + `]}`, named: true},
	{what: "a list of entries is a text", patch: `{"spec":{"ingress":"x"}}`, named: true},
	{what: "groups are a text", patch: `{"spec":{"egress":[{"toGroups":"x"}]}}`, named: true},
	{what: "a number among the groups", patch: `{"spec":{"egress":[{"toGroups":[7]}]}}`, named: true},
	{what: "a query that is a text", patch: `{"spec":{"egress":[{"toGroups":[{"aws":"x"}]}]}}`, named: true},
	{what: "labels of a query that are a list", patch: `{"spec":{"egress":[{"toGroups":[{"aws":{"labels":["x"]}}]}]}}`, named: true},
	{what: "objects in objects", patch: `{"spec":{"endpointSelector":` + nested(200) + `}}`, named: true},
	// Rules that agents do not accept.
	{what: "a port that is none", patch: `{"spec":{"ingress":[{"toPorts":[{"ports":[{"port":"99999"}]}]}]}}`, named: true},
	{what: "thousands of ports", patch: `{"spec":{"ingress":[{"toPorts":[{"ports":[$PORTS]}]}]}}`, named: true},
	{what: "both selectors", patch: `{"spec":{"nodeSelector":{}}}`, named: true},
	{what: "no selector", patch: `{"spec":{"endpointSelector":null}}`, named: true},
	{what: "a selector that is none", patch: `{"spec":{"endpointSelector":{"matchExpressions":[{"key":"a","operator":"Near"}]}}}`, named: true},
	{what: "CIDRs beside groups", patch: `{"spec":{"egress":[{"toCIDR":["10.0.0.0/8"],"toGroups":` + inGroups(handGroup) + `}]}}`, named: true},
	{what: "a CIDR that is none", patch: `{"spec":{"ingress":[{"fromCIDR":["$HUGE"]}]}}`, named: true},
	{what: "one rule of many", patch: `{"specs":[` + handRule + `,{"endpointSelector":{},"egress":[{"toEntities":["nobody"]}]},` + handRule + `]}`, named: true},
	// Groups that are not known.
	{what: "a group of an unknown provider", patch: `{"spec":{"egress":[{"toGroups":[{"nowhere":{"a":1}}]}]}}`, named: true},
	{what: "a group of no provider", patch: `{"spec":{"egress":[{"toGroups":[{},{"aws":null},{"aws":{}}]}]}}`},
	{what: "thousands of groups", patch: `{"spec":{"egress":[{"toGroups":[$GROUPS]}]}}`},
	// No rules.
	{what: "no spec", patch: `{"spec":null}`, frees: true},
	{what: "no groups", patch: `{"spec":{"egress":[]}}`, frees: true},
	{what: "empty specs", patch: `{"spec":null,"specs":[]}`, frees: true},
	{what: "a long description", patch: `{"spec":{"description":"$HUGE"}}`},
	{what: "fields of a newer version", patch: `{"spec":{"future":{"a":[1]}},"future":7,"status":{"future":[1]}}`},
	// The status.
	{what: "status is a text", patch: `{"status":"x"}`, named: true},
	{what: "conditions are a text", patch: `{"status":{"conditions":"x"}}`, named: true},
	{what: "a number among the conditions", patch: `{"status":{"conditions":[7]}}`, named: true},
	{what: "derived policies are a list", patch: `{"status":{"derivativePolicies":[1]}}`, named: true},
	{what: "derived policies of another time", patch: `{"status":{"derivativePolicies":{"x-groups-y":{"ok":true,"lastUpdated":"2999-01-01T00:00:00Z"}}}}`},
	{what: "conditions of others", patch: `{"status":{"conditions":[{"type":"example.com/odd","status":"Unknown"},{"type":"Valid","status":"False"},{"type":"Valid","status":"Unknown","lastTransitionTime":"1970-01-01T00:00:00Z"}]}}`},
	{what: "no status", patch: `{"status":null}`},
	// What derived policies have.
	{what: "the labels of a derived policy", patch: `{"metadata":{"labels":{"io.cilium.network.policy.parent.uuid":"x","io.cilium.network.policy.kind":"derivative"}}}`},
}

func nested(depth int) string {
	text := "7"
	for range depth {
		text = `{"matchLabels":` + text + `}`
	}
	return text
}

func manyPorts(n int) string {
	all := make([]string, n)
	for i := range all {
		all[i] = fmt.Sprintf(`{"port":"%d"}`, i+1)
	}
	return strings.Join(all, ",")
}

func manyGroups(n int) string {
	all := make([]string, n)
	for i := range all {
		all[i] = fmt.Sprintf(`{"aws":{"labels":{"group":"odd-%d"}}}`, i)
	}
	all[0] = fmt.Sprintf(`{"aws":{"labels":{"group":%q}}}`, handGroup)
	return strings.Join(all, ",")
}

// namespaceOf is where policies are made.
func (h *handwork) namespaceOf(resource schema.GroupVersionResource) string {
	if resource == v2.CiliumNetworkPolicyResource {
		return h.namespace
	}
	return ""
}

// makePolicy makes a policy with a group, which is needed.
func (h *handwork) makePolicy(resource schema.GroupVersionResource, name string) {
	h.t.Helper()
	u := &unstructured.Unstructured{}
	text := fmt.Sprintf(`{"apiVersion":"cilium.io/v2","kind":%q,"metadata":{"name":%q},"spec":%s}`, policyKinds[resource], name, handRule)
	if err := u.UnmarshalJSON([]byte(text)); err != nil {
		h.t.Fatal(err)
	}
	made, err := h.dynamic.Resource(resource).Namespace(h.namespaceOf(resource)).Create(h.ctx(), u, metav1.CreateOptions{})
	if err != nil {
		h.t.Fatal(err)
	}
	h.need(made.GetUID(), policyKinds[resource]+" "+name, name)
}

// derivedFrom is the policy that is derived from one, if that is valid and says that all is well: nil otherwise.
func (h *handwork) derivedFrom(resource schema.GroupVersionResource, name string) *unstructured.Unstructured {
	h.t.Helper()
	client := h.dynamic.Resource(resource).Namespace(h.namespaceOf(resource))
	u, err := client.Get(h.ctx(), name, metav1.GetOptions{})
	if err != nil {
		h.t.Fatal(err)
	}
	derived := derivedName(name, u.GetUID())
	if status, _ := validOf(u); status != "True" || derivedEntry(u, derived) != "ok" {
		return nil
	}
	d, err := client.Get(h.ctx(), derived, metav1.GetOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		h.t.Fatal(err)
	}
	if err != nil || cidrsOf(d) != "["+handMember+"/32]" {
		return nil
	}
	return d
}

// needDerived says that what is derived from a policy must stay.
func (h *handwork) needDerived(resource schema.GroupVersionResource, name string) {
	h.t.Helper()
	h.o.until("a policy is derived from "+name, func() bool { return h.derivedFrom(resource, name) != nil })
	d := h.derivedFrom(resource, name)
	h.need(d.GetUID(), policyKinds[resource]+" "+d.GetName(), name)
}

// policyReports reports whether a policy says what is wrong with it.
func (h *handwork) policyReports(m *handmade) bool {
	h.t.Helper()
	u, err := h.client(m).Get(h.ctx(), m.name, metav1.GetOptions{})
	if err != nil {
		if !apierrors.IsNotFound(err) {
			h.t.Error(err)
		}
		return false
	}
	status, message := validOf(u)
	entry := derivedEntry(u, derivedName(m.name, u.GetUID()))
	return status == "False" && message != "" || entry != "" && entry != "ok"
}

// derivedName is the name of the policy that is derived from one.
func derivedName(name string, uid types.UID) string { return name + "-groups-" + string(uid) }

// validOf is the Valid condition of a policy.
func validOf(u *unstructured.Unstructured) (status, message string) {
	conditions, _, _ := unstructured.NestedSlice(u.Object, "status", "conditions")
	for _, c := range conditions {
		if c, _ := c.(map[string]any); c["type"] == "Valid" {
			return fmt.Sprint(c["status"]), fmt.Sprint(c["message"])
		}
	}
	return "", ""
}

// derivedEntry is what the status of a policy says of one that is derived from it: ok, an error, or nothing.
func derivedEntry(u *unstructured.Unstructured, derived string) string {
	entry, _, _ := unstructured.NestedMap(u.Object, "status", "derivativePolicies", derived)
	switch {
	case entry["ok"] == true:
		return "ok"
	case entry["error"] != nil:
		return fmt.Sprint(entry["error"])
	}
	return ""
}

// cidrsOf are the destinations of the first rule of a derived policy; none if there is no list.
func cidrsOf(u *unstructured.Unstructured) string {
	specs, _, _ := unstructured.NestedSlice(u.Object, "specs")
	if len(specs) == 0 {
		return ""
	}
	rule, _ := specs[0].(map[string]any)
	entries, _ := rule["egress"].([]any)
	if len(entries) == 0 {
		return ""
	}
	entry, _ := entries[0].(map[string]any)
	set, listed := entry["toCIDRSet"].([]any)
	if !listed {
		return ""
	}
	cidrs := []any{}
	for _, c := range set {
		cidrs = append(cidrs, c.(map[string]any)["cidr"])
	}
	return fmt.Sprint(cidrs)
}
