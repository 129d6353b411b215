// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package bgp

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/skep-operator/skep/resources/stream/slim"
	"github.com/skep-operator/skep/runtime/seedtest"
)

// decode decodes an object as a stream does.
func decode[T any](t testing.TB, text string) *T {
	t.Helper()
	codec, err := slim.JSON[T]()
	if err != nil {
		t.Fatal(err)
	}
	raw, err := yaml.YAMLToJSON([]byte(text))
	if err != nil {
		t.Fatal(text, err)
	}
	obj := new(T)
	if err := codec.DecodeJSON(raw, obj); err != nil {
		t.Fatal(text, err)
	}
	return obj
}

func labelsOf(t testing.TB, text string) slim.Labels {
	t.Helper()
	var m map[string]string
	if err := yaml.Unmarshal([]byte(text), &m); err != nil {
		t.Fatal(err)
	}
	return slim.MakeLabels(m)
}

// onTheWire is what would be written.
func onTheWire(t testing.TB, wants []instance) string {
	t.Helper()
	list, err := encode(wants)
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(list)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

const rackConfig = `
metadata: {name: rack, uid: 00000000-0000-4000-8000-000000000003, resourceVersion: "3", creationTimestamp: "2026-01-01T00:00:03Z"}
spec:
  nodeSelector: {matchLabels: {rack: r1}}
  bgpInstances:
  - name: main
    localASN: 64512
    peers:
    - name: tor
      peerAddress: 192.0.2.1
      peerASN: 64500
      peerConfigRef: {group: cilium.io, kind: CiliumBGPPeerConfig, name: std}
`

const n1Override = `
metadata: {name: n1, uid: 00000000-0000-4000-8000-000000000004, resourceVersion: "4"}
spec:
  bgpInstances:
  - name: main
    routerID: 10.0.0.1
    localPort: 1790
    peers:
    - {name: tor, localAddress: 192.0.2.10, localPort: 179}
    - {name: other, localAddress: 192.0.2.11}
  - name: unknown
    routerID: 10.0.0.9
`

// BGP-4, BGP-5, BGP-E1: routers and peers with what an override says of them.
func TestDesired(t *testing.T) {
	p := newPlanner(nil)
	p.setConfig(decode[clusterConfig](t, rackConfig))
	p.setNode("n1", labelsOf(t, "{rack: r1}"))
	p.setNode("n2", labelsOf(t, "{rack: r2}"))
	a, err := p.decide("n1")
	const plain = `[{"localASN":64512,"name":"main","peers":[{"name":"tor","peerASN":64500,"peerAddress":"192.0.2.1","peerConfigRef":{"group":"cilium.io","kind":"CiliumBGPPeerConfig","name":"std"}}]}]`
	if got := onTheWire(t, a.routers); a.verb != create || err != nil || got != plain {
		t.Errorf("without an override %v %s (%v)", a.verb, got, err)
	}
	p.setOverride(decode[override](t, n1Override))
	a, err = p.decide("n1")
	const with = `[{"localASN":64512,"localPort":1790,"name":"main","peers":[{"localAddress":"192.0.2.10","name":"tor","peerASN":64500,"peerAddress":"192.0.2.1","peerConfigRef":{"group":"cilium.io","kind":"CiliumBGPPeerConfig","name":"std"}}],"routerID":"10.0.0.1"}]`
	if got := onTheWire(t, a.routers); a.verb != create || err != nil || got != with {
		t.Errorf("with an override %v %s (%v)", a.verb, got, err)
	}
	if a, _ := p.decide("n2"); a.verb != leave || a.reason != notSelected {
		t.Errorf("n2: %+v", a)
	}
}

// Number A10 of the contract's bgp.md; BGP-4, BGP-5: fields of newer definitions. An override replaces what it sets, and nothing else.
func TestDesiredOfNewerDefinitions(t *testing.T) {
	p := newPlanner(nil)
	p.setConfig(decode[clusterConfig](t, `
metadata: {name: all, uid: 00000000-0000-4000-8000-000000000003, resourceVersion: "3"}
spec:
  bgpInstances:
  - name: b
    localASN: 64512
    localPort: 179
    peers:
    - name: gateway
      peerASN: 64500
      autoDiscovery: {mode: DefaultGateway, defaultGateway: {addressFamily: ipv6}}
      peerConfigRef: {name: std}
  - {name: a, localASN: 64513, localPort: 180}
`))
	p.setOverride(decode[override](t, `
metadata: {name: n1, uid: 00000000-0000-4000-8000-000000000004, resourceVersion: "4"}
spec: {bgpInstances: [{name: a, localASN: 64999}, {name: b, localPort: 1790}]}
`))
	p.setNode("n1", slim.Labels{})
	a, err := p.decide("n1")
	const want = `[{"localASN":64512,"localPort":1790,"name":"b","peers":[{"autoDiscovery":{"defaultGateway":{"addressFamily":"ipv6"},"mode":"DefaultGateway"},"name":"gateway","peerASN":64500,"peerConfigRef":{"name":"std"}}]},{"localASN":64999,"localPort":180,"name":"a"}]`
	if got := onTheWire(t, a.routers); err != nil || got != want {
		t.Errorf("%s (%v)", got, err)
	}
}

func ownedBy(name, uid string) string {
	return fmt.Sprintf("ownerReferences: [{apiVersion: cilium.io/v2alpha1, kind: CiliumBGPClusterConfig, name: %s, uid: %s}]", name, uid)
}

const rackUID = "00000000-0000-4000-8000-000000000003"

// BGP-3, BGP-7, BGP-10, BGP-12; BGP-F1, BGP-F3, BGP-F4: whose a CiliumBGPNodeConfig is, and when it stays as it is.
func TestOwnership(t *testing.T) {
	const spec = "spec: {bgpInstances: [{name: main, localASN: 1}]}"
	for name, test := range map[string]struct {
		config, override, current string
		labels                    string
		verb                      verb
		reason                    string
	}{
		"of the config":       {current: "metadata: {" + ownedBy("rack", rackUID) + "}\n" + spec, labels: "{rack: r1}", verb: update},
		"of one of its name":  {current: "metadata: {" + ownedBy("rack", "00000000-0000-4000-8000-00000000000a") + "}\n" + spec, labels: "{rack: r1}", verb: update},
		"not selected":        {current: "metadata: {" + ownedBy("rack", rackUID) + "}\n" + spec, labels: "{rack: r2}", verb: remove},
		"node is gone":        {current: "metadata: {" + ownedBy("rack", rackUID) + "}\n" + spec, verb: remove},
		"made by hand":        {current: "metadata: {}\n" + spec, labels: "{rack: r1}", reason: foreignOwner},
		"of one that is gone": {current: "metadata: {" + ownedBy("gone", rackUID) + "}\n" + spec, labels: "{rack: r1}", reason: foreignOwner},
		"of another kind":     {current: "metadata: {ownerReferences: [{apiVersion: v1, kind: Node, name: rack, uid: " + rackUID + "}]}\n" + spec, labels: "{rack: r1}", reason: foreignOwner},
		"being deleted":       {current: "metadata: {deletionTimestamp: \"2026-01-01T00:00:00Z\", " + ownedBy("rack", rackUID) + "}\n" + spec, labels: "{rack: r1}", reason: nodeDeleting},
		"config is being deleted": {
			config: "metadata: {deletionTimestamp: \"2026-01-01T00:00:00Z\"}", current: "metadata: {" + ownedBy("rack", rackUID) + "}\n" + spec, labels: "{rack: r2}", reason: ownerDeleting,
		},
		"config is being deleted, nothing yet": {config: "metadata: {deletionTimestamp: \"2026-01-01T00:00:00Z\"}", labels: "{rack: r1}", reason: notSelected},
		"selector is not valid": {
			config: "spec: {nodeSelector: {matchExpressions: [{key: rack, operator: Odd}]}}", current: "metadata: {" + ownedBy("rack", rackUID) + "}\n" + spec, reason: ownerHasNoEffect,
		},
		"selector is not valid, nothing yet": {config: "spec: {nodeSelector: {matchExpressions: [{key: rack, operator: Odd}]}}", labels: "{rack: r1}", reason: notSelected},
		"config cannot be decoded":           {config: "spec: {bgpInstances: 7}", current: "metadata: {" + ownedBy("rack", rackUID) + "}\n" + spec, reason: ownerHasNoEffect},
		"it cannot be decoded":               {current: "metadata: {" + ownedBy("rack", rackUID) + "}\nspec: {bgpInstances: 7}", labels: "{rack: r1}", verb: update},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPlanner(nil)
			p.setConfig(decode[clusterConfig](t, overlay(t, rackConfig, test.config)))
			if test.current != "" {
				p.setNodeConfig(decode[nodeConfig](t, overlay(t, "metadata: {name: n1, uid: 00000000-0000-4000-8000-000000000005, resourceVersion: \"5\"}", test.current)))
			}
			if test.labels != "" {
				p.setNode("n1", labelsOf(t, test.labels))
			}
			a, err := p.decide("n1")
			if err != nil || a.verb != test.verb || a.verb == leave && !strings.HasPrefix(a.reason, test.reason) {
				t.Errorf("%v %q (%v), want %v %q", a.verb, a.reason, err, test.verb, test.reason)
			}
		})
	}
}

// overlay is an object with the fields of another.
func overlay(t testing.TB, texts ...string) string {
	t.Helper()
	merged := map[string]any{}
	for _, text := range texts {
		var m map[string]any
		if err := yaml.Unmarshal([]byte(text), &m); err != nil {
			t.Fatal(text, err)
		}
		mergeInto(merged, m)
	}
	text, err := yaml.Marshal(merged)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func mergeInto(to, from map[string]any) {
	for name, value := range from {
		inner, isMap := value.(map[string]any)
		into, wasMap := to[name].(map[string]any)
		if isMap && wasMap {
			mergeInto(into, inner)
		} else {
			to[name] = value
		}
	}
}

// Number A11 of the contract's bgp.md; BGP-8 and BGP-23: what an older operator has made is not written for the form of its owner.
func TestOwnerReferenceOfAnOlderOperator(t *testing.T) {
	p := newPlanner(nil)
	p.setConfig(decode[clusterConfig](t, rackConfig))
	p.setNode("n1", labelsOf(t, "{rack: r1}"))
	p.setNodeConfig(decode[nodeConfig](t, `
metadata:
  {name: n1, uid: 00000000-0000-4000-8000-000000000005, resourceVersion: "5", `+ownedBy("rack", rackUID)+`}
spec:
  bgpInstances:
  - name: main
    localASN: 64512
    peers:
    - {name: tor, peerAddress: 192.0.2.1, peerASN: 64500, peerConfigRef: {group: cilium.io, kind: CiliumBGPPeerConfig, name: std}}
`))
	if a, err := p.decide("n1"); err != nil || a.verb != leave || a.reason != upToDate {
		t.Errorf("%v %q (%v)", a.verb, a.reason, err)
	}
}

// BGP-F3: an override that cannot be decoded holds its node up, and says so.
func TestOverrideThatCannotBeDecoded(t *testing.T) {
	p := newPlanner(nil)
	p.setConfig(decode[clusterConfig](t, rackConfig))
	p.setNode("n1", labelsOf(t, "{rack: r1}"))
	p.setOverride(decode[override](t, "metadata: {name: n1, uid: 00000000-0000-4000-8000-000000000004, resourceVersion: \"4\"}\nspec: {bgpInstances: x}"))
	if a, err := p.decide("n1"); a.verb != leave || err == nil || !strings.Contains(err.Error(), "CiliumBGPNodeConfigOverride n1") {
		t.Errorf("%+v, %v", a, err)
	}
	p.removeOverride("n1")
	if a, err := p.decide("n1"); a.verb != create || err != nil {
		t.Errorf("%+v, %v", a, err)
	}
}

// BGP-14, BGP-15, BGP-E3: conditions of a CiliumBGPClusterConfig.
func TestFindings(t *testing.T) {
	p := newPlanner(nil)
	p.setConfig(decode[clusterConfig](t, rackConfig))
	p.setConfig(decode[clusterConfig](t, overlay(t, rackConfig, `{metadata: {name: all, generation: 7, uid: 00000000-0000-4000-8000-00000000000b, creationTimestamp: "2026-02-01T00:00:00Z"}, spec: {nodeSelector: null}}`)))
	p.setConfig(decode[clusterConfig](t, overlay(t, rackConfig, `{metadata: {name: none, uid: 00000000-0000-4000-8000-00000000000c, creationTimestamp: "2026-02-01T00:00:00Z"}, spec: {nodeSelector: {matchLabels: {rack: r9}}}}`)))
	for name, owner := range map[string]string{"n1": ownedBy("rack", rackUID), "n2": ownedBy("all", "00000000-0000-4000-8000-00000000000b"), "n3": "labels: {made: by-hand}"} {
		p.setNode(name, labelsOf(t, map[string]string{"n1": "{rack: r1}", "n2": "{}", "n3": "{}"}[name]))
		p.setNodeConfig(decode[nodeConfig](t, fmt.Sprintf("metadata: {name: %s, uid: 00000000-0000-4000-8000-0000000000%s0, resourceVersion: \"5\", %s}\nspec: {}", name, name[1:], owner)))
	}
	p.setNode("n4", labelsOf(t, "{rack: r2}")) // it has left rack, whose CiliumBGPNodeConfig is about to be deleted
	p.setNodeConfig(decode[nodeConfig](t, "metadata: {name: n4, uid: 00000000-0000-4000-8000-000000000040, resourceVersion: \"5\", "+ownedBy("rack", rackUID)+"}\nspec: {}"))
	exists := func(string) bool { return false }
	want := map[string]findings{
		"rack": {conditionConflict: "", conditionMissingPeer: "Referenced CiliumBGPPeerConfig(s) are missing: [std]"},
		"all": {
			conditionConflict:    "Selecting the same node(s) with ClusterConfig(s): [rack]; CiliumBGPNodeConfig(s) without a ClusterConfig exist: [n3]",
			conditionMissingPeer: "Referenced CiliumBGPPeerConfig(s) are missing: [std]",
		},
		"none": {conditionConflict: "", conditionMissingPeer: "Referenced CiliumBGPPeerConfig(s) are missing: [std]", conditionNoNode: "No node matches spec.nodeSelector"},
	}
	for name, want := range want {
		if diff := cmp.Diff(want, p.configFindings(p.config(name), exists)); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
	p.removeNode("n1")
	p.removeNode("n3")
	if f := p.configFindings(p.config("all"), exists); f[conditionConflict] != "" {
		t.Errorf("a node that moves is a conflict: %v", f)
	}
	p.setNode("n1", labelsOf(t, "{rack: r1}"))
	all := p.configFindings(p.config("all"), func(string) bool { return true })
	conditions := all.conditions(configConditions, 7)
	var got []string
	for _, c := range conditions {
		got = append(got, fmt.Sprint(c.Type, " ", c.Status, " ", c.Reason, " ", c.ObservedGeneration))
	}
	if diff := cmp.Diff([]string{
		"cilium.io/ConflictingClusterConfig True ConflictingClusterConfigs 7", "cilium.io/MissingPeerConfigs False MissingPeerConfigs 7", "cilium.io/NoMatchingNode False NoMatchingNode 7",
	}, got); diff != "" {
		t.Error(diff)
	}
}

// Number A17 of the contract's bgp.md; BGP-14: conditions of others stay, the time changes with the status alone, and the order is that of the types.
func TestSetConditions(t *testing.T) {
	old, now := metav1.Unix(1, 0), metav1.Unix(2, 0)
	all := []metav1.Condition{
		{Type: "example.com/Other", Status: "True", LastTransitionTime: old},
		{Type: conditionNoNode, Status: "True", Reason: "NoMatchingNode", LastTransitionTime: old},
		{Type: conditionConflict, Status: "False", Message: "x", LastTransitionTime: old},
	}
	setConditions(&all, configConditions, findings{}.conditions(configConditions, 3), now)
	var got []string
	for _, c := range all {
		got = append(got, fmt.Sprint(c.Type, " ", c.Status, " ", c.LastTransitionTime.Unix(), c.Message))
	}
	want := []string{conditionConflict + " False 1", conditionMissingPeer + " False 2", conditionNoNode + " False 2", "example.com/Other True 1"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	setConditions(&all, configConditions, nil, now)
	if len(all) != 1 || all[0].Type != "example.com/Other" {
		t.Errorf("%v are left", all)
	}
}

func TestLongLists(t *testing.T) {
	names := map[string]bool{}
	for i := range 25 {
		names[fmt.Sprintf("n%02d", i)] = true
	}
	if text := list(names); !strings.HasPrefix(text, "[n00 n01 ") || !strings.HasSuffix(text, " n19] and 5 more") {
		t.Error(text)
	}
}

// model is the state that a slow reference decides by: objects as they are, without anything derived from them.
type model struct {
	nodes       map[string]map[string]string
	configs     map[string]*clusterConfig
	overrides   map[string]*override
	nodeConfigs map[string]*nodeConfig
}

// decide is the contract, rule by rule.
func (m *model) decide(name string) (verb verb, owner string, wants []instance) {
	labels, isNode := m.nodes[name]
	matches := func(c *clusterConfig) (yes, known bool) {
		if c.Spec.NodeSelector == nil {
			return isNode, true
		}
		selector, err := c.Spec.NodeSelector.AsSelector()
		if err != nil {
			return false, false
		}
		return isNode && selector.Matches(slim.MakeLabels(labels)), true
	}
	build := func(c *clusterConfig) (list []instance) {
		for _, of := range c.Spec.BGPInstances {
			is := instance{Name: of.Name, LocalASN: of.LocalASN, LocalPort: of.LocalPort}
			var with *instance
			if o := m.overrides[name]; o != nil {
				for i := range o.Spec.BGPInstances {
					if o.Spec.BGPInstances[i].Name == of.Name {
						with = &o.Spec.BGPInstances[i]
					}
				}
			}
			if with != nil {
				is.RouterID = with.RouterID
				if with.LocalPort != 0 {
					is.LocalPort = with.LocalPort
				}
				if with.LocalASN != 0 {
					is.LocalASN = with.LocalASN
				}
			}
			for _, p := range of.Peers {
				if with != nil {
					for _, w := range with.Peers {
						if w.Name == p.Name {
							p.LocalAddress = w.LocalAddress
						}
					}
				}
				is.Peers = append(is.Peers, p)
			}
			list = append(list, is)
		}
		return list
	}
	if current := m.nodeConfigs[name]; current != nil {
		for _, ref := range current.Owners {
			c := m.configs[ref.Name]
			if c == nil {
				continue
			}
			yes, known := matches(c)
			switch {
			case !known:
				return leave, "", nil
			case !yes:
				return remove, c.Name, nil
			}
			wants = build(c)
			if ref.UID == c.UID && reflect.DeepEqual(current.Spec.BGPInstances, wants) {
				return leave, "", nil
			}
			return update, c.Name, wants
		}
		return leave, "", nil
	}
	var winner *clusterConfig
	for _, c := range m.configs {
		if yes, _ := matches(c); yes && (winner == nil || c.CreationTimestamp < winner.CreationTimestamp || c.CreationTimestamp == winner.CreationTimestamp && c.Name < winner.Name) {
			winner = c
		}
	}
	if winner == nil {
		return leave, "", nil
	}
	return create, winner.Name, build(winner)
}

// The plan of each node equals that of the reference after each of many random changes, most of which are those that the plan
// asks for.
func TestPlanEqualsReference(t *testing.T) {
	tally := map[verb]int{}
	for seed := range seedtest.Seeds(t, 200) {
		r := rand.New(rand.NewPCG(seed, 1))
		p := newPlanner(nil)
		m := &model{map[string]map[string]string{}, map[string]*clusterConfig{}, map[string]*override{}, map[string]*nodeConfig{}}
		uids := 0
		uid := func() slim.UID {
			uids++
			return slim.ParseUID(fmt.Sprintf("00000000-0000-4000-8000-%012d", uids))
		}
		names, configNames := []string{"n1", "n2", "n3"}, []string{"a", "b", "c"}
		routers := func() (list []instance) {
			for i := range 1 + r.IntN(2) {
				is := instance{Name: slim.MakeString(fmt.Sprint("router-", i)), LocalASN: int64(r.IntN(3)), LocalPort: int32(r.IntN(3))}
				for j := range r.IntN(3) {
					is.Peers = append(is.Peers, peer{Name: slim.MakeString(fmt.Sprint("peer-", j)), PeerASN: int64(r.IntN(3))})
				}
				list = append(list, is)
			}
			return list
		}
		for range 100 {
			name, of := names[r.IntN(len(names))], configNames[r.IntN(len(configNames))]
			switch r.IntN(9) {
			case 0:
				m.nodes[name] = map[string]string{"rack": fmt.Sprint(r.IntN(2))}
				p.setNode(name, slim.MakeLabels(m.nodes[name]))
			case 1:
				delete(m.nodes, name)
				p.removeNode(name)
			case 2:
				c := &clusterConfig{}
				c.Name, c.UID, c.CreationTimestamp = of, uid(), slim.Time(1+r.IntN(2))
				c.Spec.BGPInstances = routers()
				selectors := []string{"nodeSelector: {}", "nodeSelector: null", "nodeSelector: {matchLabels: {rack: \"0\"}}", "nodeSelector: {matchLabels: {rack: \"1\"}}", "nodeSelector: {matchExpressions: [{key: x, operator: Odd}]}"}
				if err := yaml.Unmarshal([]byte(selectors[r.IntN(len(selectors))]), &c.Spec); err != nil {
					t.Fatal(err)
				}
				m.configs[of] = c
				p.setConfig(c)
			case 3:
				delete(m.configs, of)
				p.removeConfig(of)
			case 4:
				o := &override{Spec: instances{routers()}}
				o.Name = name
				for i := range o.Spec.BGPInstances {
					o.Spec.BGPInstances[i].RouterID = slim.MakeString([]string{"", "10.0.0.1"}[r.IntN(2)])
					for j := range o.Spec.BGPInstances[i].Peers {
						o.Spec.BGPInstances[i].Peers[j].LocalAddress = slim.MakeString([]string{"", "10.0.0.2"}[r.IntN(2)])
					}
				}
				m.overrides[name] = o
				p.setOverride(o)
			case 5:
				delete(m.overrides, name)
				p.removeOverride(name)
			default: // what was planned is done
				a, err := p.decide(name)
				if err != nil {
					t.Fatal(err)
				}
				switch a.verb {
				case create, update:
					n := &nodeConfig{Spec: instances{a.routers}}
					n.Name = name
					n.Owners = []slim.OwnerReference{{Kind: slim.MakeString("CiliumBGPClusterConfig"), Name: a.owner.Name, UID: a.owner.UID}}
					m.nodeConfigs[name] = n
					p.setNodeConfig(n)
				case remove:
					delete(m.nodeConfigs, name)
					p.removeNodeConfig(name)
				}
			}
			for _, name := range names {
				a, err := p.decide(name)
				verb, owner, wants := m.decide(name)
				tally[verb]++
				is := ""
				if a.verb != leave {
					is = a.owner.Name
				}
				if err != nil || a.verb != verb || is != owner || !reflect.DeepEqual(a.routers, wants) {
					t.Fatalf("SKEP_SEED=%d: %s: %v of %s %v (%v), the reference says %v of %s %v", seed, name, a.verb, is, a.routers, err, verb, owner, wants)
				}
			}
		}
	}
	for _, v := range []verb{leave, create, update, remove} {
		if tally[v] == 0 {
			t.Errorf("nothing was decided of kind %v: %v", v, slices.Collect(maps.Keys(tally)))
		}
	}
}

// BGP-8: of 2,000 nodes and three CiliumBGPClusterConfigs, a label that changes is one action.
func TestOneLabelOfMany(t *testing.T) {
	p := largePlanner(t)
	p.setNode("n7", slim.Labels{})
	actions := 0
	for _, name := range p.names() {
		if a, err := p.decide(name); err != nil || a.verb != leave {
			actions++
		}
	}
	if actions != 1 {
		t.Errorf("%d actions", actions)
	}
}

// largePlanner has 2,000 nodes, each of one of three CiliumBGPClusterConfigs, and what these want.
func largePlanner(t testing.TB) *planner {
	t.Helper()
	p := newPlanner(nil)
	for i := range 3 {
		p.setConfig(decode[clusterConfig](t, overlay(t, rackConfig, fmt.Sprintf("{metadata: {name: rack-%d}, spec: {nodeSelector: {matchLabels: {rack: r%d}}}}", i, i))))
	}
	for i := range 2000 {
		name := fmt.Sprint("n", i)
		p.setNode(name, slim.MakeLabels(map[string]string{"rack": fmt.Sprint("r", i%3)}))
		a, err := p.decide(name)
		if err != nil || a.verb != create {
			t.Fatal(a, err)
		}
		n := &nodeConfig{Spec: instances{a.routers}}
		n.Name = name
		n.Owners = []slim.OwnerReference{{Kind: slim.MakeString(clusterConfigs.Name()), Name: a.owner.Name, UID: a.owner.UID}}
		p.setNodeConfig(n)
	}
	return p
}

// BenchmarkLabelChange is what a label that changes costs: the plan of the node, and the findings of all CiliumBGPClusterConfigs.
func BenchmarkLabelChange(b *testing.B) {
	p := largePlanner(b)
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		name := fmt.Sprint("n", i%2000)
		p.setNode(name, slim.MakeLabels(map[string]string{"rack": fmt.Sprint("r", i%2)}))
		if _, err := p.decide(name); err != nil {
			b.Fatal(err)
		}
		for _, c := range p.configs {
			p.configFindings(c, func(string) bool { return true })
		}
	}
}
