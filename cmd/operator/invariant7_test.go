// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/skep-operator/skep/resources/api"
	v2 "github.com/skep-operator/skep/resources/api/v2"
	"github.com/skep-operator/skep/resources/clustertest"
	"github.com/skep-operator/skep/runtime/seedtest"
)

// What a command prints without a cluster is the same bytes each time: Go's maps
// and schedulers are not, so each run of all commands is a process of its own.
func TestInvariant7CommandsPrintTheSameBytes(t *testing.T) {
	runs := 3
	if seedtest.Soak() {
		runs = 50
	}
	options := []string{"--enable-ipv6=false", "--cluster-pool-ipv4-cidr=10.0.0.0/8"}
	commands := []string{
		"graph", "graph --full -o text", "graph -o order", "graph --full -o dot", "graph -o mermaid", "graph --full -o json",
		"cells", "cells --verbose", "cells --json", "config", "config -o json", "config -o yaml", "rbac",
		"metrics describe", "metrics describe -o json", "hive", "hive dot-graph", "validate -v", "why ipam.clusterpool", "why enable-ipv4", "--help",
	}
	looks, dir := []look{}, filepath.Join(t.TempDir(), "reference")
	for _, command := range commands {
		looks = append(looks, look{Args: append(strings.Fields(command), options...)})
	}
	looks = append(looks, look{Args: []string{"--cmdref=" + dir}})
	var first map[string]string
	for run := range runs {
		printed := reference(t, dir, take(t, looks...))
		if run == 0 {
			first = printed
			if n := len(first) - len(commands); n < 10 {
				t.Fatalf("the reference has %d files", n)
			}
		}
		for what, again := range printed {
			switch {
			case again == "":
				t.Errorf("%s prints nothing", what)
			case again != first[what]:
				t.Errorf("run %d of %s differs:\n%s", run+1, what, firstDifference(first[what], again))
			}
		}
		if len(printed) != len(first) {
			t.Fatalf("run %d: %d outputs and files, and not %d", run+1, len(printed), len(first))
		}
	}
}

// reference is what commands have printed, by command, and what the last of them has written into a directory, by
// file. It removes the directory.
func reference(t *testing.T, dir string, looks []look) map[string]string {
	t.Helper()
	texts := map[string]string{}
	for _, l := range looks {
		l.succeeds(t)
		texts[strings.Join(l.Args, " ")] = l.Stdout
	}
	delete(texts, "--cmdref="+dir)
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		text, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		texts[e.Name()] = string(text)
	}
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	return texts
}

func firstDifference(a, b string) string {
	linesA, linesB := strings.Split(a, "\n"), strings.Split(b, "\n")
	for i := range min(len(linesA), len(linesB)) {
		if linesA[i] != linesB[i] {
			around := func(lines []string) string { return strings.Join(lines[max(0, i-10):min(len(lines), i+10)], "\n") }
			return fmt.Sprintf("line %d:\n- %s\n+ %s\nin\n%s\nand\n%s", i+1, linesA[i], linesB[i], around(linesA), around(linesB))
		}
	}
	return fmt.Sprintf("%d lines and %d", len(linesA), len(linesB))
}

var withoutDefinitions = regexp.MustCompile(`starting without some CRDs.* missing=("[^"\n]*"|\S*)`)

// awaitLateDefinitions waits for the definitions without which the duties began.
func (w *world) awaitLateDefinitions(o *operator) {
	w.t.Helper()
	for _, line := range withoutDefinitions.FindAllStringSubmatch(o.log.String(), -1) {
		for name := range strings.SplitSeq(strings.Trim(line[1], `"`), ", ") {
			eventually(w.t, name+" is registered", func() bool { return w.serves(name) })
		}
	}
}

// The same input makes the same objects: the definitions, and the nodes, those
// that are there at the start and those that come one after the other, and what
// follows from a remote cluster.
func TestInvariant7SameInputSameBytes(t *testing.T) {
	var first, second map[string]string
	for _, objects := range []*map[string]string{&first, &second} {
		w := newWorld(t)
		for _, k := range api.Kinds() {
			w.deleteDefinition(k.CRDName())
		}
		w.define("ServiceExport", "ServiceImport")
		o, _ := w.run("same", nil)
		o.leads()
		o.says("caches synced, allocating pod CIDRs", 1)
		w.awaitLateDefinitions(o)
		if code := o.stop(); code != 0 {
			t.Fatalf("exit code %d", code)
		}
		*objects = w.written("definition", definitions)

		// What is there already, in the order of its age and then of its names: here
		// both are the same, whenever a second ends.
		for i := range 40 {
			w.addNode(fmt.Sprintf("old-%02d", i))
		}
		w.addNode("pinned", "10.0.3.0/24")
		w.addNode("pinned-too", "10.0.3.0/24")
		w.addNode("pinned-outside", "192.168.0.0/24")
		w.addNode("wrong", "nonsense")
		m, _ := w.sameMesh()
		o, _ = w.run("same", nil, m.args()...)
		o.leads()
		o.until("all follows from what clusters publish", m.rests)
		w.settled()
		// What comes is served in the order in which it comes.
		for i := range 40 {
			w.addNode(fmt.Sprintf("new-%d", (i*7)%40))
		}
		w.settled()
		for _, hole := range []string{"old-07", "old-01", "new-9"} {
			w.deleteNode(hole)
		}
		w.served("in-a-hole")
		if code := o.stop(); code != 0 {
			t.Fatalf("exit code %d", code)
		}
		for name, text := range w.written("node", v2.CiliumNodeResource) {
			(*objects)[name] = text
		}
		for _, resource := range []schema.GroupVersionResource{endpointSlices, services, api.ServiceImportResource, api.ServiceExportResource} {
			maps.Copy(*objects, w.writtenIn(w.namespace, resource.Resource, resource))
		}
		m.clear(t.Context())
	}
	if n := len(first); n < 100+len(api.Kinds())/2 {
		t.Fatalf("only %d objects were made", n)
	}
	for name, text := range first {
		if second[name] != text {
			t.Errorf("%s differs: %s", name, firstDifference(text, second[name]))
		}
	}
	if len(second) != len(first) {
		maps.DeleteFunc(second, func(name, _ string) bool { return first[name] != "" })
		t.Errorf("%d objects the first time, and these more the second: %q", len(first), slices.Sorted(maps.Keys(second)))
	}
}

// ownerPattern is an owner in managed fields.
var ownerPattern = regexp.MustCompile(`k:\{\\"uid\\":\\"[-0-9a-f]+\\"\}`)

// sameMesh is a remote cluster that publishes services of several slices, and exports that this cluster has, too, or has not.
// Services are headless: addresses are drawn.
func (w *world) sameMesh() (m *mesh, a *peer) {
	w.t.Helper()
	m = newMesh(w, nil, w.namespace)
	a = m.joinHere("a")
	for i := range 8 {
		key := types.NamespacedName{Namespace: w.namespace, Name: fmt.Sprint("web-", i)}
		m.service(key.Namespace, key.Name, "10.30.0.1", true)
		a.serve(key, 80, addressesOf(i, 3*mostInSlice-1)...)
		a.export(key, 2001, "Headless", 80, 9090)
		if i%2 == 0 {
			m.serviceExport(key.Namespace, key.Name)
		}
	}
	return m, a
}

// written are all objects of a resource as JSON, without what a server makes up.
func (w *world) written(what string, resource schema.GroupVersionResource) map[string]string {
	w.t.Helper()
	return w.writtenIn("", what, resource)
}

// writtenIn is written of a namespace.
func (w *world) writtenIn(namespace, what string, resource schema.GroupVersionResource) map[string]string {
	w.t.Helper()
	list, err := w.dynamic.Resource(resource).Namespace(namespace).List(w.t.Context(), metav1.ListOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	objects := map[string]string{}
	for _, u := range list.Items {
		if namespace != "" { // how many steps it took
			unstructured.RemoveNestedField(u.Object, "metadata", "generation")
		}
		text, err := json.MarshalIndent(withoutServerFields(u.Object), "", " ")
		if err != nil {
			w.t.Fatal(err)
		}
		objects[what+" "+u.GetName()] = ownerPattern.ReplaceAllString(string(text), "<owner>")
	}
	return objects
}

// withoutServerFields takes numbers and times out at every depth.
func withoutServerFields(value any) any {
	switch value := value.(type) {
	case map[string]any:
		for key, below := range value {
			switch key {
			case "uid", "resourceVersion", "creationTimestamp", "lastTransitionTime", "time":
				if _, scalar := below.(string); scalar {
					delete(value, key)
					continue
				}
			}
			value[key] = withoutServerFields(below)
		}
		if owners, ok := value["managedFields"].([]any); ok { // by time, which is taken out
			slices.SortFunc(owners, func(a, b any) int { return strings.Compare(fmt.Sprint(a), fmt.Sprint(b)) })
		}
	case []any:
		for i := range value {
			value[i] = withoutServerFields(value[i])
		}
	}
	return value
}

func (w *world) deleteNode(name string) {
	w.t.Helper()
	if err := w.dynamic.Resource(v2.CiliumNodeResource).Delete(w.t.Context(), name, metav1.DeleteOptions{}); err != nil {
		w.t.Fatal(err)
	}
}

// Events that change nothing that matters cause no write.
func TestInvariant7StormWithoutMeaningWritesNothing(t *testing.T) {
	w := newWorld(t)
	m, a := w.sameMesh()
	o, _ := w.run("calm", nil, m.args()...)
	o.leads()
	o.says("caches synced, allocating pod CIDRs", 1)
	w.addNodes("node", 60)
	w.addNode("has", "10.200.0.0/24")
	w.addNode("twice", "10.200.0.0/24")
	w.addNode("outside", "192.168.7.0/24")
	w.addNode("garbage", "not-a-cidr")
	w.settled()
	w.refused("twice", "outside", "garbage")
	w.served("before")
	o.until("all follows from what clusters publish", m.rests)

	audit := w.Audit(t)
	for round := range 5 {
		for name := range w.nodes() {
			w.touch(name, round)
		}
		for _, k := range []string{"CiliumNode", "CiliumIdentity", "CiliumCIDRGroup"} {
			w.annotate(definitions, definitionName(t, k), round)
		}
		m.touch(a, round)
	}
	// Two nodes that come last are served last.
	sentinels := []string{"after", "long-after"}
	for _, name := range sentinels {
		w.served(name)
		key := types.NamespacedName{Namespace: w.namespace, Name: "web-0"}
		a.serve(key, 80, append(a.services[key].ips, map[string]string{"after": "10.41.0.1", "long-after": "10.41.0.2"}[name])...)
		o.until("what a cluster publishes last is served", m.rests)
	}
	if code := o.stop(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	writes := w.requests(audit, "calm").writes()
	sentinel := func(e clustertest.AuditEvent) bool {
		return slices.Contains(sentinels, e.ObjectRef.Name) || strings.HasPrefix(e.ObjectRef.Name, "web-0-a-")
	}
	if n := len(writes.which(sentinel)); n != 2*len(sentinels) {
		t.Errorf("%d writes for %d new nodes and as many endpoints", n, len(sentinels))
	}
	if others := writes.which(func(e clustertest.AuditEvent) bool { return !sentinel(e) }); len(others) > 0 {
		t.Errorf("%d writes without a reason:\n%s", len(others), others)
	}
}

// touch changes what no duty of the operator reads of a node.
func (w *world) touch(name string, round int) {
	w.t.Helper()
	w.annotate(v2.CiliumNodeResource, name, round)
	w.patch(v2.CiliumNodeResource, name, fmt.Sprintf(`{"metadata":{"labels":{"round":"%d"}},"spec":{"instance-id":"i-%d","health":{"ipv4":"10.0.0.%d"}}}`, round, round, round))
}

// touch changes what no duty reads of a Service, a ServiceExport and a Namespace, and has a cluster publish the
// same in other words.
func (m *mesh) touch(a *peer, round int) {
	m.t.Helper()
	patch := fmt.Sprintf(`{"metadata":{"annotations":{"example.com/round":"%d"},"labels":{"example.com/round":"%d"}}}`, round, round)
	for key := range a.services {
		for _, resource := range []schema.GroupVersionResource{services, api.ServiceExportResource} {
			p := patch
			if resource == services {
				p = fmt.Sprintf(`{"metadata":{"annotations":{"example.com/round":"%d"}}}`, round) // slices have its labels
			}
			_, err := m.dynamic.Resource(resource).Namespace(key.Namespace).Patch(m.t.Context(), key.Name, types.MergePatchType, []byte(p), metav1.PatchOptions{})
			if err != nil && !apierrors.IsNotFound(err) {
				m.t.Fatal(err)
			}
		}
		for _, name := range []string{a.serviceKey(key), a.exportKey(key)} {
			var fields map[string]any
			if err := json.Unmarshal(a.Get(name).Value, &fields); err != nil {
				m.t.Fatal(err)
			}
			fields["round"], fields["a"] = round, map[string]any{"b": []int{round}}
			text, err := json.MarshalIndent(fields, "", strings.Repeat(" ", round))
			if err != nil {
				m.t.Fatal(err)
			}
			a.Put(name, string(text), 0)
		}
	}
	m.patch(corev1.SchemeGroupVersion.WithResource("namespaces"), m.namespace, patch)
}

func (w *world) annotate(resource schema.GroupVersionResource, name string, round int) {
	w.t.Helper()
	w.patch(resource, name, fmt.Sprintf(`{"metadata":{"annotations":{"example.com/round":"%d"}}}`, round))
}

func (w *world) patch(resource schema.GroupVersionResource, name, patch string) *unstructured.Unstructured {
	w.t.Helper()
	u, err := w.dynamic.Resource(resource).Patch(w.t.Context(), name, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	return u
}
