// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package derivative

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"reflect"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	v2 "github.com/skep-operator/skep/resources/api/v2"
	"github.com/skep-operator/skep/resources/cluster/release"
	"github.com/skep-operator/skep/resources/networkpolicy"
)

var checks = agentChecks{release.All()[0], networkpolicy.Config{EnableL7Proxy: true, EnableICMPRules: true, EnableNodeSelectorLabels: true}.Features()}

// parent is a policy, of a namespace if that is not empty.
func parent(t *testing.T, namespace, rules string) *unstructured.Unstructured {
	t.Helper()
	kind := "CiliumNetworkPolicy"
	if namespace == "" {
		kind = "CiliumClusterwideNetworkPolicy"
	}
	u := &unstructured.Unstructured{}
	text := fmt.Sprintf(`{"apiVersion":"cilium.io/v2","kind":%q,"metadata":{"name":"web","uid":"123","namespace":%q},%s}`, kind, namespace, rules)
	if err := u.UnmarshalJSON([]byte(text)); err != nil {
		t.Fatal(text, err)
	}
	if namespace == "" {
		u.SetNamespace("")
	}
	return u
}

// addressesOf are for groups whose name is a list of addresses.
func addressesOf(t *testing.T, groups []group) map[group][]netip.Addr {
	t.Helper()
	found := map[group][]netip.Addr{}
	for _, g := range groups {
		var q v2.AWSGroup
		if err := json.Unmarshal([]byte(g.query), &q); err != nil {
			t.Fatal(err)
		}
		var all []netip.Addr
		for _, text := range q.SecurityGroupsNames {
			all = append(all, netip.MustParseAddr(text))
		}
		var err error
		if found[g], err = normalized(all); err != nil {
			t.Fatal(err)
		}
	}
	return found
}

func derivedSpecs(t *testing.T, u *unstructured.Unstructured) (*unstructured.Unstructured, string) {
	t.Helper()
	rules, err := rulesOf(u, checks)
	if err != nil {
		t.Fatal(err)
	}
	d := derive(u, rules, addressesOf(t, groupsOf(rules)))
	text, err := json.Marshal(d.Object["specs"])
	if err != nil {
		t.Fatal(err)
	}
	return d, string(text)
}

// aws is a group with these addresses.
func aws(addresses ...string) string {
	text, _ := json.Marshal(addresses)
	return fmt.Sprintf(`{"aws":{"securityGroupsNames":%s}}`, text)
}

// sameJSON compares JSON, and prints what differs.
func sameJSON(t *testing.T, what, got, want string) {
	t.Helper()
	var a, b any
	if err := json.Unmarshal([]byte(want), &b); err != nil {
		t.Fatal(want, err)
	}
	if err := json.Unmarshal([]byte(got), &a); err != nil || !reflect.DeepEqual(a, b) {
		t.Errorf("%s:\ngot  %s\nwant %s", what, got, want)
	}
}

// DERIV-2 to DERIV-4: the example of the contract.
func TestDerivedPolicy(t *testing.T) {
	p := parent(t, "default", `"spec":{"endpointSelector":{"matchLabels":{"app":"web"}},"egress":[{"toGroups":[`+aws("10.0.0.7", "1.2.3.4", "10.0.0.7")+`],
		"toPorts":[{"ports":[{"port":"443","protocol":"TCP"}]}]}]}`)
	before := p.DeepCopy()
	d, specs := derivedSpecs(t, p)
	sameJSON(t, "specs", specs, `[{
		"endpointSelector":{"matchLabels":{"any:app":"web","k8s:io.kubernetes.pod.namespace":"default"}},
		"egress":[{"toCIDRSet":[{"cidr":"1.2.3.4/32"},{"cidr":"10.0.0.7/32"}],"toPorts":[{"ports":[{"port":"443","protocol":"TCP"}]}]}],
		"enableDefaultDeny":{"egress":true,"ingress":false},
		"labels":[
			{"key":"io.cilium.k8s.policy.derived-from","source":"k8s","value":"CiliumNetworkPolicy"},
			{"key":"io.cilium.k8s.policy.name","source":"k8s","value":"web"},
			{"key":"io.cilium.k8s.policy.namespace","source":"k8s","value":"default"},
			{"key":"io.cilium.k8s.policy.uid","source":"k8s","value":"123"}]}]`)
	delete(d.Object, "specs")
	text, _ := json.Marshal(d.Object)
	sameJSON(t, "the object", string(text), `{"apiVersion":"cilium.io/v2","kind":"CiliumNetworkPolicy","metadata":{"name":"web-groups-123","namespace":"default",
		"labels":{"io.cilium.network.policy.parent.uuid":"123","io.cilium.network.policy.kind":"derivative"},
		"ownerReferences":[{"apiVersion":"cilium.io/v2","kind":"CiliumNetworkPolicy","name":"web","uid":"123"}]}}`)
	if !reflect.DeepEqual(p, before) {
		t.Error("the policy was changed")
	}
}

// DERIV-3 to DERIV-6: all four directions, spec and specs, selectors, and an empty group, which leaves an empty list.
func TestDerivedRules(t *testing.T) {
	const more = `,"enableDefaultDeny":{"ingress":false,"egress":false},"labels":[{"key":"a"}]`
	labels := func(namespace bool) string {
		text := `[{"key":"a"},{"key":"io.cilium.k8s.policy.derived-from","source":"k8s","value":"CiliumClusterwideNetworkPolicy"},{"key":"io.cilium.k8s.policy.name","source":"k8s","value":"web"},{"key":"io.cilium.k8s.policy.uid","source":"k8s","value":"123"}]`
		if namespace {
			text = strings.Replace(strings.Replace(text, "Clusterwide", "", 1), `{"key":"io.cilium.k8s.policy.uid"`, `{"key":"io.cilium.k8s.policy.namespace","source":"k8s","value":"ns"},{"key":"io.cilium.k8s.policy.uid"`, 1)
		}
		return `,"enableDefaultDeny":{"ingress":false,"egress":false},"labels":` + text
	}
	const here = `"k8s:io.kubernetes.pod.namespace":"ns"`
	for name, test := range map[string]struct{ namespace, rules, want string }{
		"four directions": {"",
			`"spec":{"endpointSelector":{},"ingress":[{"fromGroups":[` + aws("10.0.0.1") + `]}],"ingressDeny":[{"fromGroups":[` + aws("10.0.0.2") + `]}],
				"egress":[{"toGroups":[` + aws("10.0.0.3") + `]}],"egressDeny":[{"toGroups":[` + aws("fd00::4") + `]}]` + more + `}`,
			`[{"endpointSelector":{},"ingress":[{"fromCIDRSet":[{"cidr":"10.0.0.1/32"}]}],"ingressDeny":[{"fromCIDRSet":[{"cidr":"10.0.0.2/32"}]}],
				"egress":[{"toCIDRSet":[{"cidr":"10.0.0.3/32"}]}],"egressDeny":[{"toCIDRSet":[{"cidr":"fd00::4/128"}]}]` + labels(false) + `}]`},
		"empty groups": {"",
			`"spec":{"endpointSelector":{},"ingress":[{"fromGroups":[` + aws() + `]}],"ingressDeny":[{"fromGroups":[{}]}],
				"egress":[{"toGroups":[{"aws":null}],"toPorts":[{"ports":[{"port":"5555"}]}]}],"egressDeny":[{"toGroups":[{"aws":{}}]}]` + more + `}`,
			`[{"endpointSelector":{},"ingress":[{"fromCIDRSet":[]}],"ingressDeny":[{"fromCIDRSet":[]}],
				"egress":[{"toCIDRSet":[],"toPorts":[{"ports":[{"port":"5555"}]}]}],"egressDeny":[{"toCIDRSet":[]}]` + labels(false) + `}]`},
		"several groups": {"",
			`"spec":{"nodeSelector":{"matchLabels":{"a":"b"}},"egress":[{"toGroups":[` + aws("10.0.0.9", "10.0.0.8") + `,` + aws("10.0.0.1", "10.0.0.8") + `]},{"toEntities":["all"]},{"toGroups":[]}]` + more + `}`,
			`[{"nodeSelector":{"matchLabels":{"any:a":"b"}},"egress":[{"toCIDRSet":[{"cidr":"10.0.0.8/32"},{"cidr":"10.0.0.9/32"},{"cidr":"10.0.0.1/32"}]},{"toEntities":["all"]},{"toGroups":[]}]` + labels(false) + `}]`},
		"spec and specs": {"ns",
			`"spec":{"endpointSelector":{"matchLabels":{"k8s:io.kubernetes.pod.namespace":"other","k8s:app":"web"}}` + more + `},"specs":[{"endpointSelector":{"matchExpressions":[{"key":"x","operator":"Exists"}]},"egress":[{"toGroups":[{}]}]` + more + `}]`,
			`[{"endpointSelector":{"matchLabels":{"k8s:app":"web",` + here + `}}` + labels(true) + `},
				{"endpointSelector":{"matchLabels":{` + here + `},"matchExpressions":[{"key":"any:x","operator":"Exists"}]},"egress":[{"toCIDRSet":[]}]` + labels(true) + `}]`},
		"peers": {"ns",
			`"spec":{"endpointSelector":{},"ingress":[{"fromEndpoints":[{},{"matchLabels":{"a":"b"}},{"matchLabels":{"io.kubernetes.pod.namespace":"x"}},{"matchLabels":{"k8s:io.cilium.k8s.namespace.labels.team":"x"}},
				{"matchExpressions":[{"key":"k8s:io.kubernetes.pod.namespace","operator":"Exists"}]}]},{"fromNodes":[{"matchLabels":{"a":"b"}}]},{"fromGroups":[{}]}]` + more + `}`,
			`[{"endpointSelector":{"matchLabels":{` + here + `}},"ingress":[{"fromEndpoints":[{"matchLabels":{` + here + `}},{"matchLabels":{"any:a":"b",` + here + `}},{"matchLabels":{"any:io.kubernetes.pod.namespace":"x"}},{"matchLabels":{"k8s:io.cilium.k8s.namespace.labels.team":"x"}},
				{"matchExpressions":[{"key":"k8s:io.kubernetes.pod.namespace","operator":"Exists"}]}]},{"fromNodes":[{"matchLabels":{"any:a":"b"}}]},{"fromCIDRSet":[]}]` + labels(true) + `}]`},
		"endpoints without labels": {"ns",
			`"spec":{"endpointSelector":{"matchLabels":{"reserved:init":""}},"egress":[{"toGroups":[{}]},{"toEndpoints":[{}]}]` + more + `}`,
			`[{"endpointSelector":{"matchLabels":{"reserved:init":""}},"egress":[{"toCIDRSet":[]},{"toEndpoints":[{}]}]` + labels(true) + `}]`},
		"fields of newer agents": {"",
			`"spec":{"endpointSelector":{},"future":{"x":1},"egress":[{"toGroups":[{}],"futurePeers":[{"y":2}]}]` + more + `}`,
			`[{"endpointSelector":{},"future":{"x":1},"egress":[{"toCIDRSet":[],"futurePeers":[{"y":2}]}]` + labels(false) + `}]`},
	} {
		_, specs := derivedSpecs(t, parent(t, test.namespace, test.rules))
		sameJSON(t, name, specs, test.want)
	}
}

// DERIV-7; DERIV-E3: policies that agents do not accept.
func TestInvalidPolicies(t *testing.T) {
	for _, test := range []struct{ namespace, rules, want string }{
		{"ns", `"spec":{"endpointSelector":{},"egress":[{"toCIDRSet":[{"cidr":"10.9.0.0/16"}],"toGroups":[{}]}]}`, "Invalid CiliumNetworkPolicy spec: Combining ToCIDRSet and ToGroups is not supported yet"},
		{"ns", `"specs":[{"nodeSelector":{},"egress":[{"toGroups":[{}]}]}]`, "Invalid CiliumNetworkPolicy specs: rule cannot have NodeSelector"},
		{"", `"specs":[{"nodeSelector":{},"egress":[{"toGroups":[{}]}]}]`, ""},
		{"", `"spec":{"endpointSelector":{},"ingress":[{"fromCIDR":["` + strings.Repeat("x", 5000) + `"]}]}`, // DERIV-12
			"Invalid CiliumClusterwideNetworkPolicy spec: " + `unable to parse CIDR: netip.ParsePrefix("` + strings.Repeat("x", 1024-41) + "…"},
		{"", `"specs":{}`, "Invalid CiliumClusterwideNetworkPolicy specs: it is no list"},
		{"", `"specs":[null]`, "Invalid CiliumClusterwideNetworkPolicy specs: rule must have one of EndpointSelector or NodeSelector"},
		{"", `"spec":{"endpointSelector":{},"egress":7}`, "Invalid CiliumClusterwideNetworkPolicy spec: json: cannot unmarshal number into Go struct field Rule.egress of type []v2.EgressRule"},
	} {
		_, err := rulesOf(parent(t, test.namespace, test.rules), checks)
		if got := fmt.Sprint(err); got != test.want && (test.want != "" || err != nil) {
			t.Errorf("%s: %v, want %q", test.rules, err, test.want)
		}
	}
}

// DERIV-3 and DERIV-4 of any rules: no groups are left, each list that took their place is present, and all else stays.
func TestDeriveAnyRules(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	pick := func(texts ...string) string { return texts[random.IntN(len(texts))] }
	for range 200 {
		entry := func(groups string) string {
			return pick(`{"`+groups+`":[`+pick("{}", aws(), aws("10.0.0.1"), aws("10.0.0.2", "fd00::1")+",{}")+`]`+pick("", `,"toPorts":[]`, `,"x":{"y":[1]}`)+`}`, "{}", `{"toPorts":[{}]}`)
		}
		list := func(groups string) string { return "[" + entry(groups) + "," + entry(groups) + "]" }
		rule := func() string {
			return fmt.Sprintf(`{"endpointSelector":{},"ingress":%s,"ingressDeny":%s,"egress":%s,"egressDeny":%s}`,
				list("fromGroups"), list("fromGroups"), list("toGroups"), list("toGroups"))
		}
		p := parent(t, pick("", "ns"), fmt.Sprintf(`"spec":%s,"specs":[%s]`, rule(), rule()))
		originals := append([]any{p.Object["spec"]}, p.Object["specs"].([]any)...)
		d, text := derivedSpecs(t, p)
		if _, again := derivedSpecs(t, p); again != text {
			t.Fatalf("%s, and then %s", text, again)
		}
		if strings.Contains(text, "Groups") {
			t.Fatalf("groups are left: %s", text)
		}
		for i, s := range d.Object["specs"].([]any) {
			checkEntries(t, originals[i].(map[string]any), s.(map[string]any))
		}
	}
}

func checkEntries(t *testing.T, original, derived map[string]any) {
	t.Helper()
	for _, dir := range directions {
		was, is := original[dir.list].([]any), derived[dir.list].([]any)
		if len(was) != len(is) {
			t.Fatalf("%v became %v", was, is)
		}
		for i := range was {
			before, after := was[i].(map[string]any), is[i].(map[string]any)
			_, had := before[dir.groups]
			cidrs, has := after[dir.cidrs].([]any)
			if had != has || has && cidrs == nil {
				t.Fatalf("%v became %v", before, after)
			}
			for field, value := range before {
				if field != dir.groups && !reflect.DeepEqual(value, after[field]) {
					t.Fatalf("%v became %v", before, after)
				}
			}
		}
	}
}

// DERIV-6: many addresses become the prefixes that cover just those.
func TestManyAddresses(t *testing.T) {
	var all []netip.Addr
	for a := netip.MustParseAddr("10.0.0.1"); len(all) < 5000; a = a.Next() {
		all = append(all, a)
	}
	if got := prefixesOf(all[:maxSingle]); len(got) != maxSingle || got[7] != netip.MustParsePrefix("10.0.0.8/32") {
		t.Errorf("%d prefixes of %d addresses", len(got), maxSingle)
	}
	got := prefixesOf(all)
	covered := 0
	for _, p := range got {
		covered += 1 << (32 - p.Bits())
	}
	if len(got) > 20 || covered != len(all) {
		t.Errorf("%d prefixes cover %d of %d addresses", len(got), covered, len(all))
	}
	for _, a := range all {
		if !containedIn(got, a) {
			t.Fatalf("%s is in none of %v", a, got)
		}
	}
}

func containedIn(prefixes []netip.Prefix, a netip.Addr) bool {
	for _, p := range prefixes {
		if p.Contains(a) {
			return true
		}
	}
	return false
}

// DERIV-8: addresses of look-ups.
func TestAddresses(t *testing.T) {
	got, err := normalized([]netip.Addr{netip.MustParseAddr("::ffff:10.0.0.7"), netip.MustParseAddr("1.2.3.4"), netip.MustParseAddr("10.0.0.7"), netip.MustParseAddr("fe80::1%eth0")})
	if want := "[1.2.3.4 10.0.0.7 fe80::1]"; err != nil || fmt.Sprint(got) != want {
		t.Errorf("%v, %v, want %s", got, err, want)
	}
	if _, err := normalized([]netip.Addr{{}}); err == nil {
		t.Error("an address that is not valid was taken")
	}
}

// DERIV-11 and DERIV-12: what is written to the status.
func TestStatusEntries(t *testing.T) {
	at := metav1.NewTime(time.Date(2024, 8, 20, 10, 0, 0, 0, time.UTC))
	later := metav1.NewTime(at.Add(2 * time.Second))
	muchLater := metav1.NewTime(at.Add(errorInterval))
	ok := v2.DerivativePolicyStatus{OK: true, LastUpdated: at}
	failed := v2.DerivativePolicyStatus{Error: "x", LastUpdated: at}
	for name, test := range map[string]struct {
		is      map[string]v2.DerivativePolicyStatus
		name    string
		want    v2.DerivativePolicyStatus
		changed bool
	}{
		"none yet":              {nil, "a", ok, true},
		"the same, later":       {map[string]v2.DerivativePolicyStatus{"a": ok}, "a", v2.DerivativePolicyStatus{OK: true, LastUpdated: later}, false},
		"it fails":              {map[string]v2.DerivativePolicyStatus{"a": ok}, "a", failed, true},
		"it works again":        {map[string]v2.DerivativePolicyStatus{"a": failed}, "a", ok, true},
		"another error at once": {map[string]v2.DerivativePolicyStatus{"a": failed}, "a", v2.DerivativePolicyStatus{Error: "y", LastUpdated: later}, false},
		"another error":         {map[string]v2.DerivativePolicyStatus{"a": failed}, "a", v2.DerivativePolicyStatus{Error: "y", LastUpdated: muchLater}, true},
		"one of another policy": {map[string]v2.DerivativePolicyStatus{"a": ok, "b": ok}, "a", ok, true},
		"no groups any more":    {map[string]v2.DerivativePolicyStatus{"a": ok}, "", ok, true},
		"no groups and none":    {nil, "", ok, false},
	} {
		s := parentStatus{}
		s.Status.DerivativePolicies = test.is
		if got := s.set(test.name, test.want); got != test.changed {
			t.Errorf("%s: changed %v", name, got)
		}
		if want := min(1, len(test.name)); len(s.Status.DerivativePolicies) != want {
			t.Errorf("%s: %v", name, s.Status.DerivativePolicies)
		}
	}
}

// DERIV-27: number 3.1 of the contract's tenants.md is of the same kind: one group in 36,000 entries of a policy is not multiplied with its addresses.
func TestOneGroupInManyEntries(t *testing.T) {
	var addresses []string
	for i := range 256 {
		addresses = append(addresses, fmt.Sprintf("10.0.%d.1", i))
	}
	of := func(entries int) bool {
		entry := `{"toGroups":[` + aws(addresses...) + `]}`
		rules, err := rulesOf(parent(t, "default", `"spec":{"endpointSelector":{},"egress":[`+strings.Repeat(entry+",", entries-1)+entry+`]}`), checks)
		if err != nil {
			t.Fatal(err)
		}
		return tooMany(rules, addressesOf(t, groupsOf(rules)))
	}
	if most := maxAddresses / 256; of(most) || !of(most+1) || !of(2000) {
		t.Errorf("%d entries are %t, one more %t", most, of(most), of(most+1))
	}
}
