// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package bgp

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/skep-operator/skep/cells/internal/stockchart"
	"github.com/skep-operator/skep/resources/api"
	v2 "github.com/skep-operator/skep/resources/api/v2"
	"github.com/skep-operator/skep/resources/clustertest"
	"github.com/skep-operator/skep/resources/operatortest"
	"github.com/skep-operator/skep/runtime/seedtest"
)

const rackRouters = `
- name: main
  localASN: 64512
  peers: [{name: tor, peerAddress: 192.0.2.1, peerASN: 64500, peerConfigRef: {group: cilium.io, kind: CiliumBGPPeerConfig, name: std}}]
`

const overriddenRouters = `
- name: main
  localASN: 64512
  routerID: 10.0.0.1
  localPort: 1790
  peers: [{name: tor, peerAddress: 192.0.2.1, peerASN: 64500, localAddress: 192.0.2.10, peerConfigRef: {group: cilium.io, kind: CiliumBGPPeerConfig, name: std}}]
`

// allConfig is a CiliumBGPClusterConfig of all nodes.
const allConfig = "{metadata: {name: all}, spec: {nodeSelector: null}}"

// Number A11 of the contract's bgp.md, of a new CiliumBGPNodeConfig; BGP-E1, BGP-E2, BGP-E5, BGP-E6.
func TestNodeConfig(t *testing.T) {
	w := newWorld(t)
	w.servesNode(w.Kubeconfig())
}

// BGP-22: the role of the original's chart is enough.
func TestRoleOfTheChart(t *testing.T) {
	role := stockchart.Role(t)
	w := newWorld(t)
	w.servesNode(w.As("stock", role...))
}

// servesNode checks what becomes of the CiliumBGPNodeConfig of a node.
func (w *world) servesNode(kubeconfig string) {
	t := w.T
	t.Helper()
	w.node("n1", "{rack: r1}")
	w.node("n2", "{rack: r2}")
	w.create("CiliumBGPPeerConfig", "{metadata: {name: std}, spec: {}}")
	rack := w.create("CiliumBGPClusterConfig", rackConfig)
	w.create("CiliumBGPNodeConfigOverride", n1Override)
	o := w.startAs(kubeconfig)
	w.routers("n1", overriddenRouters)
	n1 := w.get("CiliumBGPNodeConfig", "n1")
	isController := true
	want := []metav1.OwnerReference{{APIVersion: "cilium.io/v2", Kind: "CiliumBGPClusterConfig", Name: "rack", UID: rack.GetUID(), Controller: &isController}}
	if diff := cmp.Diff(want, n1.GetOwnerReferences()); diff != "" {
		t.Error(diff)
	}
	if w.get("CiliumBGPNodeConfig", "n2") != nil {
		t.Error("n2 has one, too")
	}

	w.patch("CiliumBGPNodeConfig", "n1", "{spec: {bgpInstances: [{name: main, localASN: 1}, {name: more}]}, metadata: {labels: {of: hand}}}") // BGP-E6
	w.routers("n1", overriddenRouters)
	if w.get("CiliumBGPNodeConfig", "n1").GetLabels()["of"] != "hand" {
		t.Error("the labels of others are gone")
	}
	w.delete("CiliumBGPNodeConfig", "n1")
	w.routers("n1", overriddenRouters)
	w.delete("CiliumBGPNodeConfigOverride", "n1") // BGP-E5
	w.routers("n1", rackRouters)

	w.patch("CiliumNode", "n1", "{metadata: {labels: {rack: r2}}}") // BGP-E2
	w.owners(map[string]string{"n1": ""})
	w.patch("CiliumNode", "n1", "{metadata: {labels: {rack: r1}}}")
	w.routers("n1", rackRouters)
	w.delete("CiliumNode", "n1")
	w.owners(map[string]string{"n1": ""})
	w.CheckHealthy(o)
}

// BGP-E3, BGP-E4; BGP-14: the loser says so by a condition, an Event and in health, and takes over when the winner is gone.
func TestConflict(t *testing.T) {
	w := newWorld(t)
	w.node("n1", "{rack: r1}")
	w.node("n2", "{}")
	w.create("CiliumBGPPeerConfig", "{metadata: {name: std}, spec: {}}")
	w.create("CiliumBGPClusterConfig", rackConfig)
	o := w.start()
	w.owners(map[string]string{"n1": "rack", "n2": ""})
	w.create("CiliumBGPClusterConfig", rackConfig, allConfig)
	w.owners(map[string]string{"n1": "rack", "n2": "all"})
	w.conditions("CiliumBGPClusterConfig", "rack", conditionConflict+" False", conditionMissingPeer+" False", conditionNoNode+" False")
	const conflict = "Selecting the same node(s) with ClusterConfig(s): [rack]"
	w.conditions("CiliumBGPClusterConfig", "all", conditionConflict+" True "+conflict, conditionMissingPeer+" False", conditionNoNode+" False")
	if d := o.Degraded("bgp"); !strings.Contains(d, "CiliumBGPClusterConfig all: "+conflict) {
		t.Errorf("health says %q", d)
	}
	operatortest.Eventually(t, "there is an Event", func() bool {
		events, err := w.Core.CoreV1().Events("default").List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return slices.ContainsFunc(events.Items, func(e corev1.Event) bool {
			return e.InvolvedObject.Name == "all" && e.Reason == "ConflictingClusterConfigs" && e.Message == conflict
		})
	})

	w.delete("CiliumBGPClusterConfig", "rack")
	w.dropIfThere("CiliumBGPNodeConfig", "n1") // as garbage collection does, which may have done so
	w.owners(map[string]string{"n1": "all", "n2": "all"})
	w.conditions("CiliumBGPClusterConfig", "all", conditionConflict+" False", conditionMissingPeer+" False", conditionNoNode+" False")
	operatortest.Eventually(t, "nothing is degraded", func() bool { return o.Degraded("") == "" })
}

// BGP-5: what an override names that does not exist has an Event, once, until it exists.
func TestOverridesWithoutEffect(t *testing.T) {
	w := newWorld(t)
	w.create("CiliumBGPPeerConfig", "{metadata: {name: std}, spec: {}}")
	w.create("CiliumBGPClusterConfig", rackConfig)
	w.create("CiliumBGPNodeConfigOverride", n1Override)
	w.create("CiliumBGPNodeConfigOverride", n1Override, "{metadata: {name: n1.example.com}}")
	w.create("CiliumBGPNodeConfigOverride", n1Override, "{metadata: {name: n2}}")
	w.create("CiliumBGPNodeConfigOverride", "{metadata: {name: n3}, spec: {bgpInstances: [{name: main, peers: [{name: tor}]}]}}")
	w.node("n1", "{rack: r1}")
	w.node("n2", "{}")
	w.node("n3", "{rack: r1}")
	o := w.start()
	messages := func(name string) (all []string) {
		override, err := w.Dynamic.Resource(v2.CiliumBGPNodeConfigOverrideResource).Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		of := "reason=OverrideWithoutEffect,involvedObject.uid=" + string(override.GetUID()) // other tests have had one of that name
		events, err := w.Core.CoreV1().Events("default").List(t.Context(), metav1.ListOptions{FieldSelector: of})
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range events.Items {
			all = append(all, e.Message)
		}
		return all
	}
	for name, want := range map[string]string{
		"n1":             `2 parts have no effect, since CiliumBGPClusterConfig rack does not have them: the peer "other" of "main", the router "unknown"`,
		"n1.example.com": "it has no effect: no CiliumNode has its name",
		"n2":             "it has no effect: no CiliumBGPClusterConfig selects its node",
	} {
		operatortest.Eventually(t, name+" has an Event", func() bool { return slices.Equal(messages(name), []string{want}) })
	}
	w.routers("n1", overriddenRouters)
	w.patch("CiliumNode", "n1", "{metadata: {labels: {a: b}}}")
	w.routers("n3", rackRouters)
	if n1, n3 := messages("n1"), messages("n3"); len(n1) != 1 || len(n3) != 0 {
		t.Errorf("Events: %q, %q", n1, n3)
	}
	w.CheckHealthy(o)
}

// Numbers A16 and A17 of the contract's bgp.md; BGP-14, BGP-15: what is missing is in conditions, and those are removed when they are switched off.
func TestConditions(t *testing.T) {
	w := newWorld(t)
	w.CreateNamespace()
	w.create("CiliumBGPClusterConfig", rackConfig)
	o := w.start("--bgp-secrets-namespace=" + w.Namespace)
	w.conditions("CiliumBGPClusterConfig", "rack", conditionConflict+" False",
		conditionMissingPeer+" True Referenced CiliumBGPPeerConfig(s) are missing: [std]", conditionNoNode+" True No node matches spec.nodeSelector")
	w.create("CiliumBGPPeerConfig", "{metadata: {name: std}, spec: {authSecretRef: password}}")
	w.conditions("CiliumBGPPeerConfig", "std", conditionNoSecret+` True Referenced Auth Secret "password" is missing`)
	w.node("n1", "{rack: r1}")
	w.conditions("CiliumBGPClusterConfig", "rack", conditionConflict+" False", conditionMissingPeer+" False", conditionNoNode+" False")
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "password"}}
	if _, err := w.Core.CoreV1().Secrets(w.Namespace).Create(t.Context(), secret, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	w.patch("CiliumBGPPeerConfig", "std", "{metadata: {annotations: {seen: \"1\"}}}") // before the minute is over
	w.conditions("CiliumBGPPeerConfig", "std", conditionNoSecret+" False")
	w.CheckHealthy(o)
	o.Stop()
	_, last := w.writes(0)

	o = w.start("--bgp-secrets-namespace=" + w.Namespace)
	w.onlyWrites(last)
	o.Stop()
	o = w.start("--enable-bgp-control-plane-status-report=false")
	w.conditions("CiliumBGPClusterConfig", "rack")
	w.conditions("CiliumBGPPeerConfig", "std")
	w.CheckHealthy(o)
}

// BGP-F1, BGP-F2: a selector that is not valid, and a CiliumBGPNodeConfig that was made by hand, hurt nothing else.
func TestBadObjects(t *testing.T) {
	w := newWorld(t)
	w.node("n1", "{rack: r1}")
	w.node("n2", "{}")
	w.node("n3", "{}")
	w.create("CiliumBGPPeerConfig", "{metadata: {name: std}, spec: {}}")
	w.create("CiliumBGPNodeConfig", "{metadata: {name: n3}, spec: {bgpInstances: [{name: mine, localASN: 7}]}}")
	w.create("CiliumBGPClusterConfig", rackConfig)
	o := w.start()
	w.owners(map[string]string{"n1": "rack", "n2": "", "n3": ""})
	w.patch("CiliumBGPClusterConfig", "rack", "{spec: {nodeSelector: {matchExpressions: [{key: rack, operator: In}]}}}") // without values
	w.create("CiliumBGPClusterConfig", rackConfig, allConfig)
	w.owners(map[string]string{"n1": "rack", "n2": "all", "n3": ""})
	operatortest.Eventually(t, "health has both", func() bool {
		d := o.Degraded("bgp")
		return strings.Contains(d, "CiliumBGPClusterConfig all: Selecting the same node(s) with ClusterConfig(s): [rack]; CiliumBGPNodeConfig(s) without a ClusterConfig exist: [n3]; and 1 more")
	})
	if m := o.Metric("bgp_control_plane_reconcile_errors_total", "CiliumBGPClusterConfig", "rack"); m == 0 {
		t.Error("the errors of rack are not counted")
	}
	w.routers("n3", "[{name: mine, localASN: 7}]")
	w.delete("CiliumBGPNodeConfig", "n3")
	w.owners(map[string]string{"n1": "rack", "n2": "all", "n3": "all"})
	w.patch("CiliumBGPClusterConfig", "rack", "{spec: {nodeSelector: {matchLabels: {rack: r9}, matchExpressions: null}}}")
	w.owners(map[string]string{"n1": "all", "n2": "all", "n3": "all"})
	operatortest.Eventually(t, "nothing is degraded", func() bool { return o.Degraded("") == "" })
	w.delete("CiliumBGPClusterConfig", "rack")
	operatortest.Eventually(t, "the counter goes with its object", func() bool {
		return o.Metric("bgp_control_plane_reconcile_errors_total", "CiliumBGPClusterConfig", "rack") == 0
	})
}

// BGP-E7: while the API server fails nothing is given up, and all is written when it is well again.
func TestErrors(t *testing.T) {
	w := newWorld(t)
	w.create("CiliumBGPPeerConfig", "{metadata: {name: std}, spec: {}}")
	w.create("CiliumBGPClusterConfig", rackConfig, allConfig)
	o := w.start()
	rule := w.Proxy.Rule(t, clustertest.Rule{
		Match: clustertest.Match{Verbs: []string{"create"}, Resources: []string{nodeConfigs.Resource().Resource}}, Status: &clustertest.Status{Code: http.StatusInternalServerError},
	})
	for i := range 3 {
		w.node(fmt.Sprint("n", i), "{}")
	}
	operatortest.Eventually(t, "writes fail several times", func() bool { return rule.Hits(t) > 12 })
	rule.Remove(t)
	w.owners(map[string]string{"n0": "all", "n1": "all", "n2": "all"})
	operatortest.Eventually(t, "nothing is degraded", func() bool { return o.Degraded("") == "" })
}

// BGP-9: one that was deleted by hand before the watch has shown it, and was not in the list after that.
func TestDeletedUnseen(t *testing.T) {
	w := newWorld(t)
	w.create("CiliumBGPPeerConfig", "{metadata: {name: std}, spec: {}}")
	w.create("CiliumBGPClusterConfig", rackConfig, allConfig)
	o := w.start()
	watches := clustertest.Match{Verbs: []string{"list", "watch"}, Resources: []string{nodeConfigs.Resource().Resource}}
	away := w.Proxy.Answer(t, http.StatusServiceUnavailable, watches)
	w.Proxy.CutWatches(t, watches)
	w.node("n1", "{}")
	w.owners(map[string]string{"n1": "all"})
	w.delete("CiliumBGPNodeConfig", "n1")
	w.Proxy.Rule(t, clustertest.Rule{Match: watches, Status: &clustertest.Status{Code: http.StatusGone}, Times: 1})
	away.Remove(t)
	w.owners(map[string]string{"n1": "all"})
	w.CheckHealthy(o)
}

// BGP-8: one label that changes is one write, and a restart writes nothing.
func TestWrites(t *testing.T) {
	count := 60
	if seedtest.Soak() {
		count = 2000
	}
	w := newWorld(t)
	w.create("CiliumBGPPeerConfig", "{metadata: {name: std}, spec: {}}")
	want := map[string]string{}
	for i := range 3 {
		w.create("CiliumBGPClusterConfig", rackConfig, fmt.Sprintf("{metadata: {name: rack-%d}, spec: {nodeSelector: {matchLabels: {rack: r%d}}}}", i, i))
	}
	for i := range count {
		w.node(fmt.Sprint("n", i), fmt.Sprintf("{rack: r%d}", i%3))
		want[fmt.Sprint("n", i)] = fmt.Sprint("rack-", i%3)
	}
	began := time.Now()
	o := w.start("--operator-k8s-client-qps=1000", "--operator-k8s-client-burst=2000")
	operatortest.EventuallyWithin(t, 10*time.Minute, "all are written", func() bool {
		list, err := w.Dynamic.Resource(nodeConfigs.Resource()).List(t.Context(), metav1.ListOptions{})
		return err == nil && len(list.Items) == count
	})
	t.Logf("%d nodes of 3 CiliumBGPClusterConfigs are written %s after the start", count, time.Since(began).Round(time.Millisecond))
	w.owners(want)
	texts, last := w.writes(0)
	if got := len(slices.DeleteFunc(texts, isOfStatus)); got != count {
		t.Errorf("%d writes: %q", got, texts)
	}
	began = time.Now()
	w.patch("CiliumNode", "n3", "{metadata: {labels: {rack: none}}}")
	w.owners(map[string]string{"n3": ""})
	t.Logf("one label is written within %s", time.Since(began).Round(time.Millisecond))
	w.CheckHealthy(o)
	o.Stop()
	texts, last = w.writes(last)
	if !slices.Equal(texts, []string{"delete ciliumbgpnodeconfigs/n3"}) {
		t.Errorf("it wrote %q", texts)
	}
	o = w.start()
	w.onlyWrites(last)
	w.CheckHealthy(o)
}

// isOfStatus reports whether a write is one of conditions, of which there is one at first.
func isOfStatus(text string) bool { return strings.HasSuffix(text, "/status") }

// Numbers A8 and A9 of the contract's bgp.md; BGP-23: under the definitions of the originals, no write of ours takes a field off an object.
func TestDefinitionsOfOriginals(t *testing.T) {
	for _, release := range []string{"1.18", "1.19", "1.20"} {
		t.Run(release, func(t *testing.T) {
			w := newWorld(t)
			w.define(release)
			w.served("v2")
			w.node("n1", "{rack: r1}")
			w.create("CiliumBGPNodeConfigOverride", n1Override)
			rack := w.create("CiliumBGPClusterConfig", rackConfig, `{spec: {bgpInstances: [{name: main, localASN: 64512, localPort: 179, peers: [
  {name: tor, peerAddress: 192.0.2.1, peerASN: 64500, peerConfigRef: {name: std}},
  {name: gw, peerASN: 64500, autoDiscovery: {mode: DefaultGateway, defaultGateway: {addressFamily: ipv4}}, peerConfigRef: {name: std}}]}]}}`)
			transport := "{peerPort: 179}"
			if release != "1.18" { // which has no such field
				transport = "{peerPort: 179, sourceInterface: lo1}"
			}
			std := w.create("CiliumBGPPeerConfig", "{metadata: {name: std}, spec: {authSecretRef: pw, transport: "+transport+"}}")
			o := w.start("--bgp-secrets-namespace=default")
			w.routers("n1", `
- name: main
  localASN: 64512
  routerID: 10.0.0.1
  localPort: 1790
  peers:
  - {name: tor, peerAddress: 192.0.2.1, peerASN: 64500, localAddress: 192.0.2.10, peerConfigRef: {name: std}}
  - {name: gw, peerASN: 64500, autoDiscovery: {mode: DefaultGateway, defaultGateway: {addressFamily: ipv4}}, peerConfigRef: {name: std}}
`)
			w.conditions("CiliumBGPClusterConfig", "rack", conditionConflict+" False", conditionMissingPeer+" False", conditionNoNode+" False")
			w.conditions("CiliumBGPPeerConfig", "std", conditionNoSecret+` True Referenced Auth Secret "pw" is missing`)
			for _, before := range []*unstructured.Unstructured{rack, std} {
				after := w.get(before.GetKind(), before.GetName())
				if diff := cmp.Diff(before.Object["spec"], after.Object["spec"]); diff != "" {
					t.Errorf("%s %s has lost a field: %s", before.GetKind(), before.GetName(), diff)
				}
			}
			w.CheckHealthy(o)
		})
	}
}

// BGP-23: definitions that serve v2alpha1 alone are used as they are, and v2 as soon as it is served.
func TestDefinitionsWithoutV2(t *testing.T) {
	w := newWorld(t)
	definitions := w.define("1.17")
	w.served("v2alpha1")
	w.create("CiliumBGPPeerConfig", "{metadata: {name: std}, spec: {}}")
	rack := w.create("CiliumBGPClusterConfig", rackConfig)
	w.node("n1", "{rack: r1}")
	o := w.start()
	w.owners(map[string]string{"n1": "rack"})
	isController := true
	want := []metav1.OwnerReference{{APIVersion: "cilium.io/v2alpha1", Kind: "CiliumBGPClusterConfig", Name: "rack", UID: rack.GetUID(), Controller: &isController}}
	if diff := cmp.Diff(want, w.get("CiliumBGPNodeConfig", "n1").GetOwnerReferences()); diff != "" {
		t.Error(diff)
	}
	for _, kind := range bgpKinds {
		definitions.Apply(definitionOf(t, kind))
	}
	w.served("v2")
	w.create("CiliumBGPClusterConfig", "{metadata: {name: other}, spec: {nodeSelector: {matchLabels: {rack: r2}}, bgpInstances: [{name: main, peers: [{name: gw, autoDiscovery: {mode: DefaultGateway, defaultGateway: {addressFamily: ipv6}}}]}]}}")
	w.node("n2", "{rack: r2}")
	w.routers("n2", "[{name: main, peers: [{name: gw, autoDiscovery: {mode: DefaultGateway, defaultGateway: {addressFamily: ipv6}}}]}]")
	w.owners(map[string]string{"n1": "rack", "n2": "other"})
	operatortest.Eventually(t, "nothing is degraded", func() bool { return o.Degraded("") == "" })
}

// definitionOf is our definition of a kind.
func definitionOf(t *testing.T, name string) []byte {
	t.Helper()
	kind, _ := api.KindNamed(name)
	crd, err := kind.CRD(api.Edition{})
	if err != nil {
		t.Fatal(err)
	}
	text, err := yaml.Marshal(crd)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// Numbers A13, A14 and A15 of the contract's bgp.md; BGP-16, BGP-17: router IDs of a pool, over restarts and with overrides.
func TestServerRouterIDs(t *testing.T) {
	args := []string{"--bgp-router-id-allocation-mode=ip-pool", "--bgp-router-id-allocation-ip-pool=10.9.0.0/30"}
	w := newWorld(t)
	w.create("CiliumBGPPeerConfig", "{metadata: {name: std}, spec: {}}")
	w.create("CiliumBGPClusterConfig", "{metadata: {name: all}, spec: {bgpInstances: [{name: main}]}}")
	w.create("CiliumBGPNodeConfigOverride", "{metadata: {name: n2}, spec: {bgpInstances: [{name: main, routerID: 10.9.0.1}]}}")
	w.node("n1", "{}")
	o := w.start(args...)
	w.routers("n1", "[{name: main, routerID: 10.9.0.0}]")
	w.node("n2", "{}")
	w.routers("n2", "[{name: main, routerID: 10.9.0.1}]")
	w.node("n3", "{}")
	w.routers("n3", "[{name: main, routerID: 10.9.0.2}]")
	o.Stop()
	_, last := w.writes(0)
	o = w.start(args...)
	w.node("n4", "{}")
	w.routers("n4", "[{name: main, routerID: 10.9.0.3}]")
	if texts, _ := w.writes(last); len(texts) != 1 {
		t.Errorf("it wrote %q", texts)
	}
	w.node("n5", "{}")
	operatortest.Eventually(t, "the pool is full", func() bool { return strings.Contains(o.Degraded("bgp"), "make it larger") })
	w.create("CiliumBGPNodeConfigOverride", "{metadata: {name: n1}, spec: {bgpInstances: [{name: main, routerID: 10.9.0.2}]}}")
	operatortest.Eventually(t, "the override is refused", func() bool {
		return slices.ContainsFunc(o.Messages("bgp"), func(m string) bool {
			return strings.Contains(m, "10.9.0.2 of instance main is that of instance main of node n3")
		})
	})
	w.routers("n1", "[{name: main, routerID: 10.9.0.0}]")
	w.delete("CiliumNode", "n3")
	w.routers("n1", "[{name: main, routerID: 10.9.0.2}]")
	w.routers("n5", "[{name: main, routerID: 10.9.0.0}]")
	operatortest.Eventually(t, "nothing is degraded", func() bool { return o.Degraded("") == "" })
	o.Stop()
	w.start() // agents choose again
	w.routers("n4", "[{name: main}]")
	w.routers("n2", "[{name: main, routerID: 10.9.0.1}]")
}

// Number A14 of the contract's bgp.md; BGP-16: a router that an override gives an address outside of the pool gives up the one that it had.
func TestServerOverrideOutsideOfThePool(t *testing.T) {
	w := newWorld(t)
	w.create("CiliumBGPPeerConfig", "{metadata: {name: std}, spec: {}}")
	w.create("CiliumBGPClusterConfig", "{metadata: {name: all}, spec: {bgpInstances: [{name: main}]}}")
	w.node("n1", "{}")
	o := w.start("--bgp-router-id-allocation-mode=ip-pool", "--bgp-router-id-allocation-ip-pool=10.255.0.0/30")
	w.routers("n1", "[{name: main, routerID: 10.255.0.0}]")
	w.node("n2", "{}")
	w.routers("n2", "[{name: main, routerID: 10.255.0.1}]")
	w.create("CiliumBGPNodeConfigOverride", "{metadata: {name: n2}, spec: {bgpInstances: [{name: main, routerID: 192.0.2.7}]}}")
	w.routers("n2", "[{name: main, routerID: 192.0.2.7}]")
	w.node("n3", "{}")
	w.routers("n3", "[{name: main, routerID: 10.255.0.1}]")
	w.CheckHealthy(o)
}

// Number A12 of the contract's bgp.md; BGP-7: a CiliumBGPClusterConfig that is made again at once owns what it had.
func TestServerConfigIsMadeAgain(t *testing.T) {
	w := newWorld(t)
	w.create("CiliumBGPPeerConfig", "{metadata: {name: std}, spec: {}}")
	w.create("CiliumBGPClusterConfig", rackConfig)
	w.node("n1", "{rack: r1}")
	w.start()
	w.routers("n1", rackRouters)
	w.delete("CiliumBGPClusterConfig", "rack")
	again := w.create("CiliumBGPClusterConfig", rackConfig)
	operatortest.Eventually(t, "n1 is owned by the new one", func() bool {
		n1 := w.get("CiliumBGPNodeConfig", "n1")
		if n1 == nil || len(n1.GetOwnerReferences()) != 1 {
			return false
		}
		return n1.GetOwnerReferences()[0].UID == again.GetUID()
	})
	w.routers("n1", rackRouters)
}

// BGP-24: a dry run plans what would be written, each CiliumBGPNodeConfig once, and writes nothing.
func TestDryRun(t *testing.T) {
	w := newWorld(t)
	w.create("CiliumBGPPeerConfig", "{metadata: {name: std}, spec: {}}")
	w.create("CiliumBGPClusterConfig", rackConfig, allConfig)
	w.node("n1", "{rack: r1}")
	w.node("n2", "{}")
	o := w.start("--plan", "--bgp-router-id-allocation-mode=ip-pool", "--bgp-router-id-allocation-ip-pool=10.9.0.0/30")
	operatortest.Eventually(t, "both are planned, and conditions", func() bool { return len(o.Book.Writes(0)) >= 3 })
	if d := o.Degraded(""); d != "" {
		t.Errorf("it is degraded: %s", d)
	}
	o.Stop()
	if writes := o.Book.Writes(0); len(writes) != 3 {
		t.Errorf("planned are %v", writes)
	}
	if texts, _ := w.writes(0); len(texts) > 0 || w.ownerOf("n1") != "" || w.ownerOf("n2") != "" {
		t.Errorf("it wrote %q", texts)
	}
}
