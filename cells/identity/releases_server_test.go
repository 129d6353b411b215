// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package identity

import (
	"fmt"
	"maps"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/skep-operator/skep/resources/operatortest"
	"github.com/skep-operator/skep/resources/stream/slim"
)

// fleet are nodes with agents, in the namespace of the world.
type fleet struct {
	*world
	args []string // of operators
}

func newFleet(t testing.TB) *fleet {
	w := newWorld(t)
	return &fleet{w, []string{"--cilium-pod-namespace=" + w.namespace}}
}

// on is the name of a node.
func (f *fleet) on(node string) string { return f.namespace + "-" + node }

// agent has a node run an agent of a version, in place of the one that it had.
func (f *fleet) agent(node, version string) {
	f.t.Helper()
	pods := f.core.CoreV1().Pods(f.namespace)
	now := metav1.DeleteOptions{GracePeriodSeconds: ptr.To[int64](0)}
	if err := pods.DeleteCollection(f.t.Context(), now, metav1.ListOptions{LabelSelector: "k8s-app=cilium,node=" + node}); err != nil {
		f.t.Fatal(err)
	}
	f.pod(fmt.Sprintf("cilium-%s-%s", node, version), pairs{"k8s-app": "cilium", "node": node}, onNode(f.on(node)), func(p *corev1.Pod) {
		p.Spec.HostNetwork = true
		p.Spec.Containers = []corev1.Container{{Name: "cilium-agent", Image: "registry.test/cilium/cilium:v" + version}}
	})
}

func ports(all ...corev1.ContainerPort) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Spec.Containers[0].Ports = all }
}

func port(name string, number int32, protocol corev1.Protocol) corev1.ContainerPort {
	return corev1.ContainerPort{Name: name, ContainerPort: number, Protocol: protocol}
}

const gen = "gen:io.cilium.k8s.named-ports"

// plus are labels and those of named ports.
func plus(of pairs, values ...string) pairs {
	all := maps.Clone(of)
	for i, value := range values {
		key := gen
		if i > 0 {
			key += fmt.Sprint("-", i)
		}
		all[key] = value
	}
	return all
}

// Numbers 20, 21 and 23 to 26 of the contract's identities.md; ID-8, ID-32, ID-42, ID-E19, ID-E23: each pod gets the identity that
// the agent of its node looks for.
func TestServerLabelsOfTheNodesAgent(t *testing.T) {
	f := newFleet(t)
	for node, version := range map[string]string{"old": "1.19.4", "new": "1.20.1"} {
		f.node(f.on(node))
		f.agent(node, version)
	}
	f.start(f.args...)
	zone := func(z string) pairs { return pairs{"app": "web", "topology.kubernetes.io/zone": z} }
	f.pod("a", zone("z1"), onNode(f.on("new")))
	f.pod("b", zone("z2"), onNode(f.on("new")))
	f.pod("c", zone("z1"), onNode(f.on("old")))
	f.only(f.with(pairs{"app": "web"}), f.with(zone("z1")))
	f.bindingMakesNone()

	dns := ports(port("dns", 53, "UDP"), port("dns-tcp", 53, "TCP"), port("metrics", 9153, "TCP"), corev1.ContainerPort{ContainerPort: 8080})
	f.pod("dns-new", pairs{"app": "dns"}, onNode(f.on("new")), dns)
	f.pod("dns-old", pairs{"app": "dns"}, onNode(f.on("old")), dns)
	plain := f.with(pairs{"app": "dns"})
	f.made(plain)
	u := f.made(plus(plain, "dns.UDP.53_dns-tcp.TCP.53_metrics.TCP.9153"))
	f.bears("dns-new", u.GetName())
	if has := u.GetLabels(); !maps.Equal(has, pairs{"io.kubernetes.pod.namespace": f.namespace}) {
		t.Errorf("metadata.labels are %v", has)
	}

	f.pod("twice", pairs{"app": "twice"}, onNode(f.on("new")), func(p *corev1.Pod) {
		p.Spec.InitContainers = []corev1.Container{{Name: "init", Image: "i", Ports: []corev1.ContainerPort{port("init", 1, "TCP")}}}
		p.Spec.Containers = []corev1.Container{
			{Name: "a", Image: "i", Ports: []corev1.ContainerPort{port("http", 80, "TCP")}},
			{Name: "b", Image: "i", Ports: []corev1.ContainerPort{port("http", 8080, "TCP")}},
		}
	})
	f.made(plus(f.with(pairs{"app": "twice"}), "http.TCP.8080"))
	f.pod("many", pairs{"app": "many"}, onNode(f.on("new")), ports(
		port("aaaaaaaaaaaaaaa", 10001, "TCP"), port("bbbbbbbbbbbbbbb", 10002, "TCP"), port("ccccccccccccccc", 10003, "TCP")))
	f.made(plus(f.with(pairs{"app": "many"}), "aaaaaaaaaaaaaaa.TCP.10001_bbbbbbbbbbbbbbb.TCP.10002", "ccccccccccccccc.TCP.10003"))
	if n := f.updates(); n != 0 {
		t.Errorf("%d updates", n)
	}
}

// bindingMakesNone binds a pod to a node whose agent does not look at the zone, which the API server copies to the pod then.
func (f *fleet) bindingMakesNone() {
	f.t.Helper()
	web := f.with(pairs{"app": "web"})
	name := f.made(web).GetName()
	f.pod("unbound", pairs{"app": "web"})
	f.bears("unbound", name)
	before := f.createdIdentities()
	api := f.core.CoreV1().Pods(f.namespace)
	binding := &corev1.Binding{ObjectMeta: metav1.ObjectMeta{Name: "unbound"}, Target: corev1.ObjectReference{Kind: "Node", Name: f.on("new")}}
	if err := api.Bind(f.t.Context(), binding, metav1.CreateOptions{}); err != nil {
		f.t.Fatal(err)
	}
	patch := []byte(`{"metadata":{"labels":{"topology.kubernetes.io/zone":"z3"}}}`)
	if _, err := api.Patch(f.t.Context(), "unbound", types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		f.t.Fatal(err)
	}
	f.pod("later", pairs{"app": "later"}, onNode(f.on("new"))) // is seen after that
	f.made(f.with(pairs{"app": "later"}))
	f.bears("unbound", name)
	if n := f.createdIdentities() - before; n != 1 {
		f.t.Errorf("%d identities are made for the later pod alone", n)
	}
}

// Numbers 27 of the contract's identities.md; ID-42, ID-43, ID-E24: an upgrade of a node, and back.
func TestServerUpgradeOfANode(t *testing.T) {
	f := newFleet(t)
	f.node(f.on("n"))
	f.agent("n", "1.19.4")
	o := f.start(f.args...)
	http := ports(port("http", 80, "TCP"))
	plain := f.with(pairs{"app": "web"})
	f.pod("old", pairs{"app": "web"}, onNode(f.on("n")), http)
	before := f.made(plain).GetName()
	f.endpoint("old", before)
	f.agent("n", "1.20.1")
	after := f.made(plus(plain, "http.TCP.80")).GetName() // before there is a pod of the new agent
	f.bears("old", before)
	f.pod("new", pairs{"app": "web"}, onNode(f.on("n")), http)
	f.bears("new", after)
	f.endpoint("new", after)
	f.only(plain, plus(plain, "http.TCP.80"))

	o.Stop()
	before200 := len(f.requests())
	o = f.start(f.args...)
	f.bears("old", before)
	f.bears("new", after)
	f.agent("n", "1.19.4")
	operatortest.Eventually(t, "the pod may get the identity of either", func() bool {
		return len(f.controller.numbersOf(slim.Key{Namespace: f.namespace, Name: "new"})) == 2
	})
	f.bears("new", after)
	f.bears("old", before)
	if all := f.requests(); len(all) != before200 {
		t.Errorf("restart and downgrade make requests: %v", all[before200:])
	}
	if d := o.Degraded("identity"); d != "" {
		t.Errorf("it is degraded:\n%s", d)
	}
}

// ID-41, ID-42; ID-E25: pods that are on no node yet get what all agents look for that run; with the option, what it says.
func TestServerPodsOnNoNode(t *testing.T) {
	f := newFleet(t)
	for node, version := range map[string]string{"old": "1.19.4", "new": "1.20.1"} {
		f.node(f.on(node))
		f.agent(node, version)
	}
	o := f.start(f.args...)
	f.pod("web", pairs{"app": "web"}, ports(port("http", 80, "TCP")))
	plain := f.with(pairs{"app": "web"})
	f.only(plain, plus(plain, "http.TCP.80"))
	o.Stop()
	f.start(append(f.args, "--cilium-release=1.18")...)
	f.pod("db", pairs{"app": "db"}, ports(port("sql", 5432, "TCP")), onNode(f.on("new")))
	f.only(plain, plus(plain, "http.TCP.80"), f.with(pairs{"app": "db"}))
}

// Numbers 17, 18 and 19 of the contract's identities.md; ID-40: what an agent of 1.18 or later wrote is no edit.
func TestServerIdentityOfAnAgent(t *testing.T) {
	w := newWorld(t)
	want := w.with(pairs{"app": "web"})
	u := identityObject("2001", want)
	u.SetLabels(pairs{"io.kubernetes.pod.namespace": w.namespace})
	w.store(u)
	old := identityObject("2002", want)
	old.SetLabels(pairs{"app": "web", "io.kubernetes.pod.namespace": w.namespace})
	w.store(old)
	w.pod("web-1", pairs{"app": "web"})
	o := w.start()
	w.bears("web-1", "2001")
	w.requested()
	w.endpoint("web-1", "2001")
	w.deleteIdentity("2002")
	w.deleteIdentity("2001")
	if again := w.made(want); again.GetName() != "2001" || !maps.Equal(again.GetLabels(), u.GetLabels()) {
		t.Errorf("it became %s with %v", again.GetName(), again.GetLabels())
	}
	w.requested("create: 201")
	if d := o.Degraded("identity"); d != "" {
		t.Errorf("it is degraded:\n%s", d)
	}
}
