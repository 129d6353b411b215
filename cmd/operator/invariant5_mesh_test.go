// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/skep-operator/skep/resources/api"
	"github.com/skep-operator/skep/resources/clustertest"
	"github.com/skep-operator/skep/resources/kvstore/kvstoretest"
)

// Invariants 1, 4 and 5, of remote clusters: an etcd that refuses, is silent, has lost all its data, or has the half of them
// again and no marker, deletes nothing, while an operator runs and at its start, and hurts its own cluster only. Nor does a value
// that cannot be used, whether there was one before or not, nor an odd object of a user. What the cluster does not publish any
// more is deleted when that is known, and no more. A cluster with the ID of another has no part in it.
func TestInvariant5RemoteEtcds(t *testing.T) {
	r := newRemoteEtcds(t)
	o, _ := r.run("first", nil, r.options()...)
	r.awaits(o, "what both clusters publish")

	r.twin(o)
	r.oddObjects()
	for _, value := range oddValues {
		r.putOdd(value)
	}
	for _, key := range []string{"", "/", "x", "x/y/z"} {
		r.a.Put("cilium/state/services/v1/a/"+key, "{}", 0)
		r.a.Put("cilium/state/serviceexports/v1/a/"+key, "{}", 0)
	}
	r.a.serve(r.key("both"), 80, "10.31.0.1", "10.31.0.2", "10.31.0.3", "10.31.1.1") // comes behind them
	r.changes(o, "values of a cannot be used")
	o.until("the odd service has its slice", func() bool {
		objects, err := r.objects(r.namespace + "-odd")
		return err == nil && slices.ContainsFunc(objects.slices, func(s discoveryv1.EndpointSlice) bool { return strings.HasPrefix(s.Name, "both-a-") })
	})
	r.door.Refuse(t)
	r.door.Cut(t)
	r.changes(o, "a refuses")
	if code := o.stop(); code != 0 {
		t.Errorf("exit code %d", code)
	}

	r.door.BlackHole(t)
	audit := r.Audit(t)
	o, _ = r.run("second", nil, r.options()...)
	o.leads()
	r.changes(o, "a is silent at the start")
	r.isDegraded(o, "clustermesh.a")
	r.deletedNothing()
	writes := r.requests(audit, "second").writes().which(func(e clustertest.AuditEvent) bool {
		return e.Stored() && !strings.HasPrefix(e.ObjectRef.Name, "both-b-") // what is refused is tried once
	})
	if len(writes) > 0 {
		t.Errorf("a restart wrote of what has not changed:\n%s", writes)
	}

	r.a.Restore(t, r.empty)
	r.a.lost = true
	r.door.Heal(t)
	r.says(o, "a is empty", "has no key cilium/cluster-config/a")
	r.changes(o, "a is empty")
	r.a.introduce()
	r.says(o, "a has its configuration again", "")
	for _, name := range []string{"both", "exported"} { // and not the others
		r.a.putService(r.key(name))
		r.a.putExport(r.key(name))
	}
	r.changes(o, "a is not complete")
	r.deletedNothing()

	r.putOdd(oddValues[0])
	r.a.mark()
	r.a.serve(r.key("both"), 80, "10.31.0.1", "10.31.0.2", "10.31.0.3", "10.31.1.2") // is read when the marker was
	r.changes(o, "a is complete, but for values that cannot be used")
	delete(r.a.services, r.key("of-a"))
	delete(r.a.exports, r.key("far"))
	r.a.putService(r.key("of-a"))
	r.a.putExport(r.key("far"))
	r.awaits(o, "a is complete")
	r.deletedOnly("endpointslices of-a-a-", "serviceimports far", "services "+derivedServiceName(r.key("far")))
	o.until("health is well", func() bool { s, ok := o.status(); return ok && len(s.Degraded) == 0 })
	if n := o.log.Count("panicked"); n > 0 {
		t.Error("the operator has panicked")
	}
	if code := o.stop(); code != 0 {
		t.Errorf("exit code %d", code)
	}
}

// remoteEtcds are two remote clusters. That of a has a proxy in front; b has its keys in the etcd of the control plane.
type remoteEtcds struct {
	*mesh
	a, b  *peer
	door  *clustertest.Proxy
	empty string // a snapshot of the etcd of a without any key
	moves int

	mu      sync.Mutex
	deleted []string
}

func newRemoteEtcds(t *testing.T) *remoteEtcds {
	w := newWorld(t)
	r := &remoteEtcds{mesh: newMesh(w, nil, w.namespace)}
	etcd := kvstoretest.Start(t, 1)
	r.empty, r.door = snapshotOf(t, etcd), etcd.Proxy(t, etcd.Members(t)[0].Name)
	r.a = r.join("a", etcd, etcd.ProxyEndpoints()[0])
	r.b = r.joinHere("b")
	for _, name := range []string{"both", "of-a", "exported"} {
		r.service(r.namespace, name, "10.30.0.1", true)
		r.a.serve(r.key(name), 80, "10.31.0.1", "10.31.0.2", "10.31.0.3", "10.31.0.4")
	}
	r.serviceExport(r.namespace, "exported")
	for i, name := range []string{"both", "exported", "far"} {
		r.a.export(r.key(name), 2001, []string{"ClusterSetIP", "Headless"}[i%2], 80)
	}
	r.b.serve(r.key("both"), 80, "10.32.0.1")
	r.b.export(r.key("both"), 2002, "ClusterSetIP", 80, 9090)
	for _, resource := range []schema.GroupVersionResource{endpointSlices, services, api.ServiceImportResource} {
		r.witness(resource, func(kind watch.EventType, u *unstructured.Unstructured) {
			if kind == watch.Deleted && u.GetNamespace() == r.namespace {
				r.mu.Lock()
				defer r.mu.Unlock()
				r.deleted = append(r.deleted, resource.Resource+" "+u.GetName())
			}
		})
	}
	return r
}

func (r *remoteEtcds) options() []string {
	return append(r.args(), "--clustermesh-sync-timeout=1s")
}

func (r *remoteEtcds) key(name string) types.NamespacedName {
	return types.NamespacedName{Namespace: r.namespace, Name: name}
}

// oddValues are values that cannot be used; $KEY is what they have to say of their keys.
var oddValues = []string{
	"{", "null", "[]", `"x"`, "7", "{}", strings.Repeat("x", 1<<20), strings.Repeat("[", 100_000), `{"cluster":"b","namespace":"x","name":"y","clusterID":2}`,
	`{$KEY,"clusterID":0,"type":"Odd"}`, `{$KEY,"clusterID":256,"type":7}`, `{$KEY,"clusterID":2,"backends":"x","type":"Headless","ports":{"a":1}}`,
	`{$KEY,"clusterID":2,"backends":{"not-an-ip":{}},"type":"Headless","ports":[{"port":0}]}`,
	`{$KEY,"clusterID":2,"backends":{"10.0.0.1":{"http":{"Protocol":"TCP","Port":70000}}},"type":"Headless","ports":[{"port":70000}]}`,
	`{$KEY,"clusterID":2,"backends":{"10.0.0.1":{"http":{"Protocol":"TCP","Port":-1}}},"type":"Headless","exportCreationTimestamp":"yesterday"}`,
	`{$KEY,"clusterID":"2","hostnames":[1],"type":"Headless","sessionAffinityConfig":[]}`,
}

// putOdd has a publish a value that cannot be used, of a Service and of an export.
func (r *remoteEtcds) putOdd(value string) {
	for name, key := range map[string]string{"of-a": r.a.serviceKey(r.key("of-a")), "far": r.a.exportKey(r.key("far"))} {
		r.a.Put(key, strings.ReplaceAll(value, "$KEY", fmt.Sprintf(`"cluster":"a","namespace":%q,"name":%q`, r.namespace, name)), 0)
	}
}

// oddObjects makes objects of users that are in the way, or say odd things, in a namespace of their own.
func (r *remoteEtcds) oddObjects() {
	r.t.Helper()
	odd := newMesh(&world{Cluster: r.Cluster, t: r.t, namespace: r.namespace + "-odd", core: r.core, dynamic: r.dynamic}, nil, r.namespace+"-odd")
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: odd.namespace, Annotations: map[string]string{globalNamespace: strings.Repeat("maybe", 20_000)}}}
	if _, err := r.core.CoreV1().Namespaces().Create(r.t.Context(), ns, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
		r.t.Fatal(err)
	}
	key := types.NamespacedName{Namespace: odd.namespace, Name: "both"}
	odd.service(key.Namespace, derivedServiceName(key), "10.30.0.2", true) // in the way
	port := `{"http":{"Protocol":"TCP","Port":80},"Not A Name":{"Protocol":"ICMP","Port":0}}`
	r.a.Put(r.a.serviceKey(key), fmt.Sprintf(
		`{"cluster":"a","namespace":%q,"name":"both","shared":true,"clusterID":2,"hostnames":{"10.31.2.1":"Not A Name"},"backends":{"10.31.2.1":%s,"127.0.0.1":%s,"fe80::1%%eth0":%s}}`,
		key.Namespace, port, port, port), 0)
	r.a.export(key, 2001, "ClusterSetIP", 80)
	odd.service(key.Namespace, "both", "10.30.0.3", true)
	reserved := map[string]any{"kubernetes.io/service-name": "x", "a b": "c", "multicluster.kubernetes.io/source-cluster": strings.Repeat("x", 100_000)}
	odd.apply(api.ServiceExportResource, "ServiceExport", key.Namespace, "both", map[string]any{
		"metadata": map[string]any{"annotations": map[string]any{"example.com/huge": strings.Repeat("x", 200_000)}},
		"spec":     map[string]any{"exportedLabels": reserved, "exportedAnnotations": reserved},
	})
	odd.apply(api.ServiceImportResource, "ServiceImport", key.Namespace, "empty", map[string]any{"spec": map[string]any{"type": "ClusterSetIP", "ports": []any{}}})
	for i, labels := range []map[string]any{{}, {sourceCluster: ""}, {sourceCluster: "a"}, {sourceCluster: "gone", discoveryv1.LabelServiceName: "both"}} {
		labels[discoveryv1.LabelManagedBy] = meshManager
		odd.apply(endpointSlices, "EndpointSlice", key.Namespace, fmt.Sprint("odd-", i), map[string]any{
			"metadata": map[string]any{"labels": labels}, "addressType": "FQDN", "endpoints": []any{map[string]any{"addresses": []any{"example.com"}}},
		})
	}
	odd.serviceExport(key.Namespace, "terminating")
	odd.serviceImport(key.Namespace, "terminating", "Headless")
	for _, kind := range api.MulticlusterKinds() { // that never go
		client := r.dynamic.Resource(kind.Resource).Namespace(key.Namespace)
		_, err := client.Patch(r.t.Context(), "terminating", types.MergePatchType, []byte(`{"metadata":{"finalizers":["example.com/never"]}}`), metav1.PatchOptions{})
		if err != nil {
			r.t.Error(err)
		}
		if err := client.Delete(r.t.Context(), "terminating", metav1.DeleteOptions{}); err != nil {
			r.t.Error(err)
		}
		r.t.Cleanup(func() {
			_, _ = client.Patch(context.WithoutCancel(r.t.Context()), "terminating", types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
		})
	}
}

// awaits waits until all is as the clusters have it.
func (r *remoteEtcds) awaits(o *operator, when string) {
	r.t.Helper()
	o.until(when, r.mesh.rests)
}

// changes has b change its endpoints, which is served whatever has become of a.
func (r *remoteEtcds) changes(o *operator, when string) {
	r.t.Helper()
	r.moves++
	r.b.serve(r.key("both"), 80, fmt.Sprintf("10.32.1.%d", r.moves))
	r.awaits(o, when)
	r.deletedNothing()
}

// twin adds a cluster with the ID of a, which publishes the service of another, and removes it.
func (r *remoteEtcds) twin(o *operator) {
	r.t.Helper()
	etcd := kvstoretest.Connect(r.t, r.Etcd())
	twin := r.publish("twin", etcd, r.a.id)
	r.peers = r.peers[:2]
	twin.serve(r.key("both"), 80, "10.33.0.1")
	r.file("twin", etcd.Endpoints()[0])
	r.isDegraded(o, "clustermesh.twin")
	r.changes(o, "a cluster has the ID of another")
	r.leave("twin")
}

func (r *remoteEtcds) isDegraded(o *operator, part string) {
	r.t.Helper()
	o.until(part+" is degraded", func() bool {
		s, ok := o.status()
		return ok && strings.Contains(s.degraded(), part)
	})
}

// says waits until the health of a has a text, or is well, but for what is not read yet.
func (r *remoteEtcds) says(o *operator, when, text string) {
	r.t.Helper()
	o.until(when, func() bool {
		s, ok := o.status()
		missing := strings.Contains(s.degraded(), "cluster-config/a")
		return ok && missing == (text != "") && strings.Contains(s.degraded(), text)
	})
}

func (r *remoteEtcds) deletedNothing() { r.t.Helper(); r.deletedOnly() }

// deletedOnly checks that all that was deleted begins with one of these, and that each was.
func (r *remoteEtcds) deletedOnly(want ...string) {
	r.t.Helper()
	eventually(r.t, fmt.Sprintf("%q were deleted", want), func() bool { // a list may show it before the watch does
		r.mu.Lock()
		defer r.mu.Unlock()
		seen := map[string]bool{}
		for _, has := range r.deleted {
			i := slices.IndexFunc(want, func(w string) bool { return strings.HasPrefix(has, w) })
			if i < 0 {
				r.t.Fatalf("%s was deleted", has)
			}
			seen[want[i]] = true
		}
		return len(seen) == len(want)
	})
}
