// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package derivative

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/skep-operator/skep/resources/networkpolicy"
	"github.com/skep-operator/skep/resources/stream/slim"
)

// policyWith is a decoded policy whose only entry has groups.
func policyWith(t *testing.T, groups string) *networkpolicy.Policy {
	t.Helper()
	p := &networkpolicy.Policy{}
	text := fmt.Sprintf(`{"endpointSelector":{},"egress":[{"toGroups":[%s]}]}`, groups)
	if err := p.Spec.UnmarshalJSON([]byte(text)); err != nil {
		t.Fatal(err)
	}
	return p
}

// Numbers 24 and 25 of the contract's policies.md; DERIV-19: the id of a group is that which agents compute.
func TestIDsOfGroups(t *testing.T) {
	for group, want := range map[string][2]string{
		`{"aws":{"region":"eu-west-1","securityGroupsIds":["sg-1"]}}`:                                   {`{"aws":{"securityGroupsIds":["sg-1"],"region":"eu-west-1"}}`, "lkAMIF0ULoYbtEBDqrizVNr16a9QbwuOuEAPdQ"},
		`{"aws":{"labels":{"test":"a"}}}`:                                                               {`{"aws":{"labels":{"test":"a"}}}`, "DmOJ3K3UMC3IocNfwHwQAivbEppvsK4tygOTsA"},
		`{"aws":{"labels":{"test":"a"},"securityGroupsIds":[],"securityGroupsNames":null,"region":""}}`: {`{"aws":{"labels":{"test":"a"}}}`, "DmOJ3K3UMC3IocNfwHwQAivbEppvsK4tygOTsA"},
		`{"aws":{"labels":{"b":"<&>","a":"é"}}}`:                                                        {`{"aws":{"labels":{"a":"é","b":"\u003c\u0026\u003e"}}}`, ""},
		`{}`:         {`{}`, ""},
		`{"aws":{}}`: {`{"aws":{}}`, ""},
	} {
		groups := policyWith(t, group).Groups()
		if len(groups) != 1 || string(groups[0]) != want[0] || want[1] != "" && groups[0].ID() != want[1] || len(groups[0].ID()) != 38 {
			t.Errorf("%s is %q with the id %s, want %s", group, groups, groups[0].ID(), want)
		}
	}
	two := policyWith(t, `{"aws":{"securityGroupsIds":["a","b"]}},{"aws":{"securityGroupsIds":["b","a"]}},{"aws":{"securityGroupsIds":["a","b"]}}`).Groups()
	if len(two) != 2 {
		t.Errorf("the groups are %q", two)
	}
}

// DERIV-26: of groups of a policy no more are kept than are looked up, and one.
func TestBoundOfGroups(t *testing.T) {
	var all []string
	for i := range 20_000 {
		all = append(all, fmt.Sprintf(`{"aws":{"region":"r%d"}}`, i))
	}
	if n := len(policyWith(t, strings.Join(all, ",")).Groups()); n != networkpolicy.MaxGroups+1 {
		t.Errorf("%d groups are kept", n)
	}
}

// DERIV-25: of groups that are large together those are kept that have a CIDR group, and that there are more, so that there is a derived policy.
func TestLargeGroups(t *testing.T) {
	group := func(name string) string {
		return fmt.Sprintf(`{"aws":{"region":"%s%s"}}`, name, strings.Repeat("x", maxGroupText/4))
	}
	three := []string{group("a"), group("b"), group("c")}
	if all := policyWith(t, strings.Join(slices.Repeat(three, 3), ",")).Groups(); len(all) != 3 || slices.ContainsFunc(all, networkpolicy.Group.IsLarge) {
		t.Errorf("%d groups of %d are kept", len(all), len(three))
	}
	all := policyWith(t, strings.Join(append(three, group("d"), group("e"), group("d"), `{"aws":{"region":"f"}}`), ",")).Groups()
	d := policyWith(t, group("d")).Groups()[0]
	if len(all) != 6 || !all[3].IsLarge() || isServable(all[3]) || all[3].ID() != d.ID() || len(all[3]) > 100 || len(all[5]) > 100 || all[5].IsLarge() {
		t.Errorf("%d groups are kept, the last one is %.100q", len(all), all[len(all)-1])
	}
}

// DERIV-24, DERIV-25: a group is known whichever of its policies has its text.
func TestUsersOfLargeGroups(t *testing.T) {
	text := policyWith(t, `{"aws":{"region":"a"}}`).Groups()[0]
	large := networkpolicy.Group("#" + text.ID())
	for _, order := range [][]networkpolicy.Group{{text, large}, {large, text}} {
		u := newUsers()
		for i, g := range order {
			u.set(slim.Key{Namespace: "shop", Name: fmt.Sprint(i)}, []networkpolicy.Group{g}, false)
		}
		if g, policies, used, _ := u.group(text.ID()); g != text || len(policies) != 2 || !used {
			t.Errorf("%v: the group is %q of %v", order, g, policies)
		}
	}
}

// decodeCIDRGroup is a CIDR group as the stream has it.
func decodeCIDRGroup(t *testing.T, content map[string]any) *cidrGroup {
	t.Helper()
	text, err := json.Marshal(content)
	if err != nil {
		t.Fatal(err)
	}
	codec, err := slim.JSON[cidrGroup]()
	if err != nil {
		t.Fatal(err)
	}
	g := &cidrGroup{}
	if err := codec.DecodeJSON(text, g); err != nil {
		t.Fatal(err)
	}
	return g
}

// Numbers 24 and 28 of the contract's policies.md; DERIV-20: what is written, and what is restored.
func TestContentOfCIDRGroups(t *testing.T) {
	const id = "lkAMIF0ULoYbtEBDqrizVNr16a9QbwuOuEAPdQ"
	group := policyWith(t, `{"aws":{"securityGroupsIds":["sg-1"],"region":"eu-west-1"}}`).Groups()[0]
	addresses, err := normalized([]netip.Addr{netip.MustParseAddr("10.0.0.7"), netip.MustParseAddr("1.2.3.4"), netip.MustParseAddr("fd00::1")})
	if err != nil {
		t.Fatal(err)
	}
	u := newCIDRGroup(group, cidrsOf(addresses))
	text, _ := json.Marshal(u.Object)
	sameJSON(t, "the CIDR group", string(text), `{"apiVersion":"cilium.io/v2","kind":"CiliumCIDRGroup","metadata":{
		"generateName":"auto-cilium-external-group-",
		"annotations":{"cilium.io/external-group":"{\"aws\":{\"securityGroupsIds\":[\"sg-1\"],\"region\":\"eu-west-1\"}}"},
		"labels":{"app.kubernetes.io/part-of":"cilium","cilium.io/external-group-controller":"","extgrp.cilium.io/`+id+`":""}},
		"spec":{"externalCIDRs":["1.2.3.4/32","10.0.0.7/32","fd00::1/128"]}}`)
	if empty := newCIDRGroup(group, cidrsOf(nil)); fmt.Sprint(empty.Object["spec"]) != "map[externalCIDRs:[]]" {
		t.Errorf("without addresses it is %v", empty.Object["spec"])
	}

	for name, edit := range map[string]func(){
		"nothing":        func() {},
		"the annotation": func() { u.SetAnnotations(map[string]string{"x": "y"}) },
		"another id": func() {
			u.SetLabels(map[string]string{ownLabel: "", partOfLabel: partOf, idPrefix + id: "", idPrefix + "x": ""})
		},
		"no id":              func() { u.SetLabels(map[string]string{ownLabel: "", partOfLabel: partOf, "mine": "z"}) },
		"the value of an id": func() { u.SetLabels(map[string]string{ownLabel: "", partOfLabel: partOf, idPrefix + id: "x"}) },
		"an address":         func() { u.Object["spec"] = map[string]any{"externalCIDRs": []any{"9.9.9.9/32"}} },
	} {
		u.SetName("auto-cilium-external-group-abcde")
		edit()
		if is := decodeCIDRGroup(t, u.Object).isAsWanted(group, cidrsOf(addresses)); is != (name == "nothing") {
			t.Errorf("%s was edited: it is as wanted: %v", name, is)
		}
		setCIDRGroup(u, group, cidrsOf(addresses))
		if g := decodeCIDRGroup(t, u.Object); !g.isAsWanted(group, cidrsOf(addresses)) || !slices.Equal(g.ids(), []string{id}) {
			t.Errorf("%s was edited, and is not restored: %v", name, u.Object)
		}
	}
	if u.GetAnnotations()["x"] != "y" {
		t.Error("an annotation of others is removed")
	}
}

// DERIV-25: an id that begins like no key of a label does, 1 in 32, is not served.
func TestGroupsWithoutLabel(t *testing.T) {
	n := 0
	for i := range 3200 {
		g := policyWith(t, fmt.Sprintf(`{"aws":{"region":"r%d"}}`, i)).Groups()[0]
		if first := g.ID()[0]; isServable(g) != (first != '-' && first != '_') {
			t.Errorf("%s: servable is %v", g.ID(), isServable(g))
		}
		if !isServable(g) {
			n++
		}
	}
	if n < 50 || n > 200 {
		t.Errorf("%d of 3,200", n)
	}
}

// DERIV-22, DERIV-23: the users of groups through changes, and a policy that cannot be decoded.
func TestUsersOfGroups(t *testing.T) {
	a, b := networkpolicy.Group("a"), networkpolicy.Group("b")
	one, two := slim.Key{Namespace: "x", Name: "one"}, slim.Key{Name: "two"}
	u := newUsers()
	for i, step := range []struct {
		key     slim.Key
		groups  []networkpolicy.Group
		unknown bool
		changed []networkpolicy.Group
	}{
		{one, []networkpolicy.Group{a, b}, false, []networkpolicy.Group{a, b}},
		{two, []networkpolicy.Group{b}, false, []networkpolicy.Group{b}},
		{one, []networkpolicy.Group{b}, false, []networkpolicy.Group{a}},
		{one, nil, true, nil}, // it keeps b
		{two, nil, false, []networkpolicy.Group{b}},
	} {
		var want []string
		for _, g := range step.changed {
			want = append(want, g.ID())
		}
		if got := u.set(step.key, step.groups, step.unknown); !slices.Equal(got, want) {
			t.Errorf("step %d: %q, want %q", i, got, want)
		}
	}
	if _, policies, wanted, unsure := u.group(b.ID()); !wanted || !unsure || !slices.Equal(policies, []slim.Key{one}) {
		t.Errorf("b is wanted: %v, by %v, unsure: %v", wanted, policies, unsure)
	}
	u.set(one, nil, false)
	if _, _, wanted, unsure := u.group(b.ID()); wanted || unsure || len(u.groups)+len(u.policies)+len(u.of) > 0 {
		t.Errorf("b is wanted: %v, unsure: %v; %d groups are kept", wanted, unsure, len(u.groups))
	}
}
