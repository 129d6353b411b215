// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package load

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

func TestSizes(t *testing.T) {
	for name, want := range map[string]struct{ workloads, namespaces, daemonSets int }{
		"S": {1125, 31, 2},
		"M": {1800, 50, 2},
		"L": {11250, 312, 2},
	} {
		size, err := ParseSize(name, 0, 0, 0)
		if err != nil {
			t.Fatal(err)
		}
		if size.workloads() != want.workloads || size.namespaces() != want.namespaces || size.daemonSets() != want.daemonSets {
			t.Errorf("%s: %d workloads, %d namespaces, %d DaemonSets; want %+v", name, size.workloads(), size.namespaces(), size.daemonSets(), want)
		}
	}
	if size, err := ParseSize("M", 0, 20_000, 300); err != nil || size != (Size{2000, 20_000, 300}) || size.workloads() != 300 {
		t.Errorf("M with other pods and label sets is %v, %v", size, err)
	}
	for name, bad := range map[string]struct {
		size                   string
		nodes, pods, labelSets int
	}{
		"unknown":             {"XL", 0, 0, 0},
		"no nodes":            {"", 0, 10, 0},
		"no pods":             {"", 10, 0, 0},
		"crowded":             {"", 1, 1000, 0},
		"too many nodes":      {"", 70_000, 10, 0},
		"too many label sets": {"", 10, 10, 11},
		"negative label sets": {"", 10, 10, -1},
	} {
		if size, err := ParseSize(bad.size, bad.nodes, bad.pods, bad.labelSets); err == nil {
			t.Errorf("%s: %v is accepted", name, size)
		}
	}
}

// everything lists all items of a load as text.
func everything(t *testing.T, opts Options) map[string][]string {
	t.Helper()
	p, err := newPlan(opts)
	if err != nil {
		t.Fatal(err)
	}
	all := map[string][]string{}
	for _, ph := range p.phases(false) {
		for i := range ph.count {
			text, err := json.Marshal(ph.item(i).object)
			if err != nil {
				t.Fatal(err)
			}
			all[ph.name] = append(all[ph.name], string(text))
		}
	}
	return all
}

func TestTheSeedDecides(t *testing.T) {
	opts := Options{Size: Size{Nodes: 5, Pods: 100}, Seed: 3, Converged: true}
	first, again := everything(t, opts), everything(t, opts)
	if !maps.EqualFunc(first, again, slices.Equal) {
		t.Error("the same seed gave other objects")
	}
	opts.Seed = 4
	if other := everything(t, opts); slices.Equal(first["pods"], other["pods"]) {
		t.Error("another seed gave the same pods")
	}
}

func TestPartsOfALoad(t *testing.T) {
	opts := Options{Size: Size{Nodes: 2, Pods: 30, LabelSets: 4}, Identities: true, Without: []string{"ciliumendpoints", "services"}}
	all := everything(t, opts)
	if len(all["ciliumidentities"]) != 4 || len(all["pods"]) != 30 {
		t.Errorf("%d identities of %d pods", len(all["ciliumidentities"]), len(all["pods"]))
	}
	for _, name := range opts.Without {
		if _, there := all[name]; there {
			t.Errorf("%s are there", name)
		}
	}
	opts.Without = []string{"ciliumendpoint"}
	if p, err := newPlan(opts); err == nil {
		t.Errorf("a phase that does not exist is left out without a word: %v", p.Without)
	}
}

func TestPodsAreDistinctAndPlaced(t *testing.T) {
	for _, size := range []Size{{1, 1, 0}, {1, 240, 0}, {7, 40, 0}, {100, 24_000, 0}, {100, 24_000, 300}, Sizes["M"]} {
		p, err := newPlan(Options{Size: size, Seed: 1})
		if err != nil {
			t.Fatal(err)
		}
		pods := 0
		names, addresses := map[string]bool{}, map[string]bool{}
		for i := range p.workloads {
			w := &p.workloads[i]
			if w.replicas < 1 {
				t.Errorf("%v: %s has %d pods", size, w.name, w.replicas)
			}
			for replica := range w.replicas {
				pods++
				names[w.namespace+"/"+p.podName(w, replica)] = true
				node, host := p.place(w, replica)
				if node < 0 || node >= size.Nodes || host < firstHost || host > 254 {
					t.Fatalf("%v: pod %d of %s is host %d on node %d", size, replica, w.name, host, node)
				}
				addresses[podIP(node, host).String()] = true
			}
		}
		if pods != size.Pods || len(names) != pods || len(addresses) != pods {
			t.Errorf("%v: %d pods, %d names, %d addresses", size, pods, len(names), len(addresses))
		}
	}
}

func TestLabelSetsAreDistinctAndUneven(t *testing.T) {
	p, err := newPlan(Options{Size: Sizes["M"], Seed: 1})
	if err != nil {
		t.Fatal(err)
	}
	sets, identities, inNamespaces := map[string]bool{}, map[int64]bool{}, map[string]int{}
	var sizes []int
	for i := range p.workloads {
		w := &p.workloads[i]
		sets[fmt.Sprint(p.labelList(w))] = true
		identities[w.identity] = true
		inNamespaces[w.namespace]++
		if !w.daemonSet {
			sizes = append(sizes, w.replicas)
		}
		if w.identity < 256 || w.identity > 65535 {
			t.Errorf("%s has the identity %d", w.name, w.identity)
		}
	}
	if len(sets) != 1800 || len(identities) != 1800 || len(inNamespaces) != 51 {
		t.Errorf("%d label sets, %d identities, in %d namespaces", len(sets), len(identities), len(inNamespaces))
	}
	slices.Sort(sizes)
	if median, largest := sizes[len(sizes)/2], sizes[len(sizes)-1]; median > 8 || largest < 50 {
		t.Errorf("half of the Deployments have up to %d pods, the largest has %d: want many small and few large", median, largest)
	}
}

func TestPhasesHaveWhatTheySay(t *testing.T) {
	p, err := newPlan(Options{Size: Size{Nodes: 10, Pods: 300}, Seed: 1, Converged: true})
	if err != nil {
		t.Fatal(err)
	}
	known := map[string]bool{}
	for _, ph := range p.phases(true) {
		if ph.count == 0 {
			t.Errorf("there are no %s", ph.name)
		}
		for i := range ph.count {
			it := ph.item(i)
			for _, owner := range it.object.GetOwnerReferences() {
				if !known[string(owner.UID)] {
					t.Errorf("%v comes before its owner %s %s", it, owner.Kind, owner.Name)
				}
			}
			uid := string(it.object.GetUID())
			if known[uid] {
				t.Errorf("%v has the UID of another object", it)
			}
			known[uid] = true
		}
	}
}

func TestPodsAreRealistic(t *testing.T) {
	p, err := newPlan(Options{Size: Size{Nodes: 1, Pods: 10}, Seed: 1})
	if err != nil {
		t.Fatal(err)
	}
	pod := p.pod(&p.workloads[0], 0).object.(*corev1.Pod)
	if len(pod.Spec.Containers) != 2 || len(pod.Status.ContainerStatuses) != 2 || len(pod.Status.Conditions) != 5 {
		t.Errorf("%d containers, %d statuses, %d conditions", len(pod.Spec.Containers), len(pod.Status.ContainerStatuses), len(pod.Status.Conditions))
	}
	app := pod.Spec.Containers[0]
	if len(app.Env) < 8 || app.LivenessProbe == nil || app.ReadinessProbe == nil || len(app.VolumeMounts) < 3 {
		t.Errorf("the container is %+v", app)
	}
}
