// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package mcsapi

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	mcsv1alpha1 "sigs.k8s.io/mcs-api/pkg/apis/v1alpha1"

	"github.com/skep-operator/skep/resources/cluster"
	"github.com/skep-operator/skep/resources/clustermesh"
	"github.com/skep-operator/skep/resources/operatortest"
	"github.com/skep-operator/skep/resources/stream/slim"
)

// publishIn has a cluster export many services in a namespace.
func (w *world) publishIn(cluster, namespace, name string, n int) {
	w.T.Helper()
	for i := range n {
		name := fmt.Sprintf("%s-%d", name, i)
		w.peers[cluster].Put("cilium/state/serviceexports/v1/"+cluster+"/"+namespace+"/"+name, fmt.Sprintf(
			`{"cluster":%q,"name":%q,"namespace":%q,"exportCreationTimestamp":"2020-01-01T00:00:00Z","ports":[%s],"type":"ClusterSetIP","sessionAffinity":"None"}`,
			cluster, name, namespace, httpPort), 0)
	}
}

// derivedIn is how many derived Services a namespace has.
func (w *world) derivedIn(namespace string) int {
	w.T.Helper()
	list, err := w.Core.CoreV1().Services(namespace).List(w.T.Context(), metav1.ListOptions{LabelSelector: mcsv1alpha1.LabelServiceName})
	if err != nil {
		w.T.Fatal(err)
	}
	return len(list.Items)
}

// readyImports is how many ServiceImports of the test's namespace are ready.
func (w *world) readyImports() (n int) {
	w.T.Helper()
	list, err := w.Dynamic.Resource(imports.Resource()).Namespace(w.Namespace).List(w.T.Context(), metav1.ListOptions{})
	if err != nil {
		w.T.Fatal(err)
	}
	for _, u := range list.Items {
		var i mcsv1alpha1.ServiceImport
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, &i); err != nil {
			w.T.Fatal(err)
		}
		if meta.IsStatusConditionTrue(i.Status.Conditions, string(mcsv1alpha1.ServiceImportConditionReady)) {
			n++
		}
	}
	return n
}

// MCS-44 and MCS-45; numbers 8.1 of the contract's tenants.md: the exports of a cluster make nothing in a namespace of the system, and a
// bounded number elsewhere, over a restart, too. Health and a metric say so; what goes makes space for others.
func TestExportsAreBounded(t *testing.T) {
	w := newWorld(t, "a")
	// 250 exports by the bound of 50, as 2,500 by that of 500.
	args := []string{"--clustermesh-mcs-api-max-imports=50"}
	w.publishIn("a", "kube-system", "many", 250)
	o := w.start(args...)
	operatortest.Eventually(t, "the metric has all of kube-system", func() bool { return o.Metric("mcsapi_left_out_exports", "c1", "a") == 250 })
	w.publishIn("a", w.Namespace, "some", 60)
	operatortest.Eventually(t, "the namespace has 50", func() bool { return w.derivedIn(w.Namespace) == 50 })
	operatortest.Eventually(t, "the metric has the rest", func() bool { return o.Metric("mcsapi_left_out_exports", "c1", "a") == 260 })
	operatortest.Eventually(t, "health says so", func() bool {
		text := o.Degraded("mcsapi")
		return strings.Contains(text, "250 services of cluster a in the namespace kube-system (of the system: --clustermesh-mcs-api-system-namespaces)") &&
			strings.Contains(text, "10 services of cluster a in the namespace "+w.Namespace+" (--clustermesh-mcs-api-max-imports)")
	})
	operatortest.Eventually(t, "all are ready", func() bool { return w.readyImports() == 50 })
	before := w.writes()
	o.Stop()
	o = w.start(args...)
	operatortest.Eventually(t, "the same is left out", func() bool { return o.Metric("mcsapi_left_out_exports", "c1", "a") == 260 })
	if n, system := w.derivedIn(w.Namespace), w.derivedIn("kube-system"); n != 50 || system > 0 || w.writes() != before {
		t.Errorf("%d derived Services, %d in kube-system, %d writes", n, system, w.writes()-before)
	}
	for i := range 60 {
		if name := fmt.Sprintf("some-%d", i); w.derived(name) != nil {
			w.peers["a"].Delete(w.exportKey("a", name))
			w.awaitDerived(name, "is gone", isGone)
			break
		}
	}
	operatortest.Eventually(t, "another one has its place", func() bool { return w.derivedIn(w.Namespace) == 50 })
	operatortest.Eventually(t, "one less is left out", func() bool { return o.Metric("mcsapi_left_out_exports", "c1", "a") == 259 })
	o.Stop()

	// What exists stays when the bound is lower.
	o = w.start("--clustermesh-mcs-api-max-imports=5")
	operatortest.Eventually(t, "the same is left out", func() bool { return o.Metric("mcsapi_left_out_exports", "c1", "a") == 259 })
	if n := w.derivedIn(w.Namespace); n != 50 {
		t.Errorf("%d derived Services", n)
	}
}

// MCS-44; numbers 8.1 of the contract's tenants.md: what this cluster exports itself is not bounded, and the option opens the namespaces
// of the system.
func TestSystemNamespaces(t *testing.T) {
	w := newWorld(t, "a")
	o := w.start("--k8s-namespace=" + w.Namespace)
	w.publish("a", "theirs", "ClusterSetIP", 2020, httpPort)
	operatortest.Eventually(t, "the export of a is left out", func() bool { return o.Metric("mcsapi_left_out_exports", "c1", "a") == 1 })
	w.publish("a", "web", "ClusterSetIP", 2020, httpPort)
	w.service("web", nil)
	w.export("web")
	w.awaitImport("web", "ClusterSetIP, http 80/TCP, a, c1")
	if w.imported("theirs") != "" {
		t.Error("a namespace of the system was filled")
	}
	o.Stop()
	o = w.start("--k8s-namespace="+w.Namespace, "--clustermesh-mcs-api-system-namespaces")
	w.awaitImport("theirs", "ClusterSetIP, http 80/TCP, a")
	w.awaitHealthy(o)
	o.Stop()
	o = w.start("--k8s-namespace=" + w.Namespace) // what exists stays
	w.publish("a", "theirs", "ClusterSetIP", 2020, httpPort+`,{"name":"more","port":81}`)
	w.awaitImport("theirs", "ClusterSetIP, http 80/TCP, more 81/TCP, a")
	w.awaitHealthy(o)
}

// MCS-45; numbers 8.1 of the contract's tenants.md: over any history no cluster has more than its number in a namespace, but for what
// had objects before, and what is left out has its turn when there is space.
func TestAdmission(t *testing.T) {
	for seed := range uint64(100) {
		r := rand.New(rand.NewPCG(seed, 8))
		most := 1 + r.IntN(4)
		held := []string{"n0", "n1", "n2"}[:r.IntN(4)]
		a := newAdmission(most, map[string]bool{"system": true})
		exported, objects := map[string]bool{}, map[string]bool{}
		for _, name := range held {
			exported[name], objects[name] = true, true
		}
		seedNames := func(string, string) []string { return slices.Sorted(maps.Keys(objects)) }
		visit := func(namespace, name string) []string {
			of := contribution{"a", slim.Key{Namespace: namespace, Name: name}}
			if exported[name] {
				if a.admit(of, objects[name], seedNames) {
					objects[name] = true
				}
				return a.release(of.key, func(string) bool { return true })
			}
			delete(objects, name)
			return a.release(of.key, func(string) bool { return false })
		}
		for range 60 {
			name := fmt.Sprint("n", r.IntN(9))
			exported[name] = r.IntN(3) > 0
			for queue := []string{name}; len(queue) > 0; queue = queue[1:] {
				queue = append(queue, visit("shop", queue[0])...)
			}
			if n := len(objects); n > max(most, len(held)) {
				t.Fatalf("seed %d: %d have objects, of %d", seed, n, most)
			}
			waiting := 0
			for name, is := range exported {
				if is && !objects[name] {
					waiting++
				}
			}
			if byCluster, text := a.leftOut(); len(objects) < most && byCluster["a"] > 0 || (text == "") != (byCluster["a"] == 0) || byCluster["a"] > waiting {
				t.Fatalf("seed %d: %v are left out, %d have objects of %d, %d wait: %s", seed, byCluster, len(objects), most, waiting, text)
			}
		}
	}
	if a := newAdmission(0, map[string]bool{"system": true}); a.admit(contribution{"a", slim.Key{Namespace: "system", Name: "x"}}, false, func(string, string) []string { return nil }) {
		t.Error("a namespace of the system is filled")
	}
}

// MCS-46; numbers 8.1 of the contract's tenants.md: ports of an export are bounded, and those that the ServiceImport has stay.
func TestPortsAreBounded(t *testing.T) {
	var many []mcsv1alpha1.ServicePort
	for i := range int32(50) {
		many = append(many, port(fmt.Sprint("p", i), 1000+i))
	}
	e := of("a", 0, ports(many...))
	i := newImport("a")
	i.Spec.Ports = []mcsv1alpha1.ServicePort{many[40], many[3], port("gone", 1)}
	for name, test := range map[string]struct {
		imported *serviceImport
		most     int
		want     string
	}{
		"none before": {nil, 3, "p0 p1 p2"}, "two before": {i, 3, "p0 p3 p40"}, "more before than the bound": {i, 1, "p3 p40"}, "any number": {nil, 0, ""}, "no more than that": {nil, 50, ""},
	} {
		got, left := boundPorts(e, test.imported, test.most)
		var names []string
		for _, p := range got.Ports {
			names = append(names, p.Name)
		}
		if text := strings.Join(names, " "); test.want != "" && text != test.want || test.want == "" && len(names) != 50 || left != 50-len(names) {
			t.Errorf("%s: %s, %d are left out", name, text, left)
		}
	}
	if len(e.Ports) != 50 {
		t.Error("the export was changed")
	}
	a := newAdmission(1, nil)
	a.leavePorts(web, map[string]int{"a": 47})
	if _, text := a.leftOut(); text != "47 ports of shop/web of cluster a (--clustermesh-mcs-api-max-ports, or no Service can have them)" {
		t.Error(text)
	}
	if a.leavePorts(web, nil); len(a.ports) > 0 {
		t.Error("ports of an export that is gone are kept")
	}
}

// MCS-47; numbers 8.2 of the contract's tenants.md: the export of this cluster decides, whatever date another one claims. Without it the
// oldest one does.
func TestThisClusterDecides(t *testing.T) {
	own := of("c1", 0, nil)
	claimed := of("b", -24*365*50, func(e *clustermesh.ServiceExport) {
		e.Type, e.SessionAffinity, e.Labels = mcsv1alpha1.Headless, corev1.ServiceAffinityClientIP, map[string]string{"a": "b"}
		ports(port("http", 8080), port("more", 81))(e)
		traffic("IPv6", "Local", "")(e)
	})
	m := newRules(defaults, cluster.Config{ClusterName: "c1"}).merge([]*clustermesh.ServiceExport{claimed, own})
	if s := m.spec; s.Type != mcsv1alpha1.ClusterSetIP || s.SessionAffinity != corev1.ServiceAffinityNone || s.InternalTrafficPolicy != nil || len(s.Ports) != 2 || s.Ports[0] != http80 || s.Ports[1].Name != "more" {
		t.Errorf("%+v", s)
	}
	if len(m.labels) > 0 || len(m.conflicts) == 0 || m.conflicts[0].text != "the port http 80/TCP is that of cluster c1, which is this one, and another one in b" {
		t.Errorf("%v, %+v", m.labels, m.conflicts)
	}
	if m := originals.merge([]*clustermesh.ServiceExport{claimed, own}); m.spec.Type != mcsv1alpha1.Headless || m.labels["a"] != "b" {
		t.Errorf("by the option: %+v", m)
	}
	if m := (rules{cluster: "c1"}).merge([]*clustermesh.ServiceExport{of("a", 0, nil), claimed}); m.spec.Type != mcsv1alpha1.Headless {
		t.Errorf("without an export of this cluster: %+v", m)
	}
}

// MCS-37, MCS-47; number 8.2 of the contract's tenants.md, B12 to B14 of its bgp.md: whatever IP families another cluster says, and whatever date, the first of
// this cluster's export stays, and what has it not is a conflict. By the option the oldest counts.
func TestFirstFamilyOfThisClusterStays(t *testing.T) {
	families := []string{"", "IPv4", "IPv6", "IPv4 IPv6", "IPv6 IPv4"}
	for _, own := range families {
		for _, theirs := range families {
			for _, hours := range []int{-24 * 365 * 50, 0, 1} {
				all := []*clustermesh.ServiceExport{of("c1", 0, traffic(own, "", "")), of("b", hours, traffic(theirs, "", ""))}
				m := newRules(defaults, cluster.Config{ClusterName: "c1"}).merge(all)
				first, _, _ := strings.Cut(own, " ")
				want, differs := own, theirs != "" && !strings.Contains(theirs, first)
				switch {
				case own == "":
					want = theirs
				case theirs != "" && !differs && len(theirs) < len(own):
					want = theirs
				}
				if got := fmt.Sprint(m.spec.IPFamilies); got != "["+want+"]" || differs != (len(m.conflicts) > 0) {
					t.Errorf("%q, %q of another one: %s, not %q; %v", own, theirs, got, want, m.conflicts)
				}
			}
		}
	}
	all := []*clustermesh.ServiceExport{of("c1", 0, traffic("IPv4 IPv6", "", "")), of("b", 1, traffic("IPv6", "", ""))}
	if m := originals.merge(all); fmt.Sprint(m.spec.IPFamilies) != "[IPv6]" || len(m.conflicts) > 0 {
		t.Errorf("by the option: %v, %v", m.spec.IPFamilies, m.conflicts)
	}
}

// MCS-47, MCS-15: a cluster that is not known, such as one whose value cannot be decoded, does not freeze what this cluster exports.
func TestThisClusterDecidesMeanwhile(t *testing.T) {
	own := of("c1", 0, func(e *clustermesh.ServiceExport) {
		ports(port("http", 8080), port("new", 82))(e)
		traffic("IPv4 IPv6", "", "")(e)
	})
	s := state{imported: newImport("b", "c1"), unknown: []string{"b"}, published: own, rules: rules{cluster: "c1"}}
	s.imported.Spec.Ports, s.imported.Spec.IPFamilies = []mcsv1alpha1.ServicePort{http80, port("theirs", 81)}, []corev1.IPFamily{"IPv4"}
	p := s.planImport()
	var names []string
	for _, of := range p.spec.Ports {
		names = append(names, portText(of))
	}
	if got := strings.Join(names, ", "); !p.follows || p.spec.Type != mcsv1alpha1.ClusterSetIP || got != "http 8080/TCP, new 82/TCP, theirs 81/TCP" || fmt.Sprint(p.spec.IPFamilies) != "[IPv4]" {
		t.Errorf("%t, %+v", p.follows, p.spec)
	}
	if s.rules.oldestDecides = true; s.planImport().spec != &s.imported.Spec {
		t.Error("by the option a cluster that is not known holds all")
	}
}

// MCS-47; numbers 8.2 of the contract's tenants.md: a remote export with a date of 1970 does not change the Service that this cluster
// exports, and the ServiceExport says that it is another one. The option has the oldest decide.
func TestOlderClaims(t *testing.T) {
	w := newWorld(t, "a")
	o := w.start()
	w.service("web", nil)
	w.export("web")
	w.awaitImport("web", "ClusterSetIP, http 80/TCP, c1")
	d := w.awaitDerived("web", "exists", exists)
	w.publish("a", "web", "Headless", 1970, `{"name":"http","port":8080}`)
	w.awaitConditions("web", "Valid=True/Valid Ready=True/Exported Conflict=True/PortConflict,TypeConflict")
	w.awaitImport("web", "ClusterSetIP, http 80/TCP, a, c1")
	if is := w.derived("web"); is == nil || is.UID != d.UID || is.Spec.Ports[0].Port != 80 {
		t.Errorf("%+v", is)
	}
	w.awaitHealthy(o)
	o.Stop()
	o = w.start("--clustermesh-mcs-api-oldest-decides")
	w.awaitImport("web", "Headless, http 8080/TCP, a, c1")
	w.awaitHealthy(o)
}

// MCS-48; numbers 8.3 of the contract's tenants.md: labels and annotations of remote exports come here if they are on the list, those of this
// cluster's always.
func TestListedMetadata(t *testing.T) {
	const name = "external-dns.alpha.kubernetes.io/hostname"
	w := newWorld(t, "a")
	o := w.start()
	fields := `"annotations":{"` + name + `":"bank.test","service.cilium.io/affinity":"local"},"labels":{"app.kubernetes.io/name":"web","bgp":"announce"}`
	w.publishWith("a", fields)
	w.awaitMetadata("app.kubernetes.io/name=web", "service.cilium.io/affinity=local")
	w.awaitHealthy(o)
	o.Stop()
	o = w.start("--clustermesh-mcs-api-annotations=external-dns.alpha.kubernetes.io/*", "--clustermesh-mcs-api-labels=")
	w.awaitMetadata("", name+"=bank.test")
	o.Stop()
	o = w.start()
	w.awaitMetadata("app.kubernetes.io/name=web", "service.cilium.io/affinity=local")
	w.service("web", nil)
	w.create(exports.Resource(), "ServiceExport", "web", map[string]any{"exportedAnnotations": map[string]any{name: "shop.test"}})
	w.awaitMetadata("", name+"=shop.test")
	w.awaitHealthy(o)
}

// MCS-48: entries of the lists.
func TestLists(t *testing.T) {
	a := allowed{"a.test/b", "c.test/*", "d"}
	for key, want := range map[string]bool{"a.test/b": true, "a.test/bb": false, "c.test/x": true, "c.test": false, "d": true, "": false} {
		if a.has(key) != want {
			t.Errorf("%q: %t", key, !want)
		}
	}
	for list, want := range map[string]bool{"*": true, "a/*": true, "a*b": false, "": true} {
		c := defaults
		c.ClusterMeshMCSAPILabels = []string{list}
		if err := c.Validate(); (err == nil) != want {
			t.Errorf("%q: %v", list, err)
		}
	}
}

// MCS-46, K8 of the contract's tenants.md: a port that no Service can have is that of its export alone.
func TestPortsThatNoServiceHas(t *testing.T) {
	http := port("http", 80)
	odd := func(edit func(*mcsv1alpha1.ServicePort)) mcsv1alpha1.ServicePort {
		p := port("odd", 81)
		edit(&p)
		return p
	}
	e := of("a", 0, ports(
		odd(func(p *mcsv1alpha1.ServicePort) { p.Name = "Bad_Name" }), http, odd(func(p *mcsv1alpha1.ServicePort) { p.Protocol = "XYZ" }),
		odd(func(p *mcsv1alpha1.ServicePort) { p.AppProtocol = new("a b") }), odd(func(p *mcsv1alpha1.ServicePort) { p.Name = strings.Repeat("a", 64) }),
	))
	for most, left := range map[int]int{0: 4, 1: 4, 100: 4} {
		if got, n := boundPorts(e, nil, most); len(got.Ports) != 1 || got.Ports[0].Name != "http" || n != left {
			t.Errorf("at most %d: %v, %d are left out", most, got.Ports, n)
		}
	}
	if len(e.Ports) != 5 {
		t.Error("the export was changed")
	}
}
