// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package clustertest

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"regexp"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// uidPattern finds what looks like a UID.
var uidPattern = regexp.MustCompile(`[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}`)

var small = Load{Nodes: 10, Pods: 200, Converged: true}

func newDynamic(t *testing.T, config *rest.Config) *dynamic.DynamicClient {
	t.Helper()
	transport, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(transport.CloseIdleConnections)
	client, err := dynamic.NewForConfigAndClient(config, transport)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

func cilium(resource string) schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: "cilium.io", Version: "v2", Resource: resource}
}

// loadedKinds are the resources of a load and where etcd has them.
var loadedKinds = map[schema.GroupVersionResource]string{
	corev1.SchemeGroupVersion.WithResource("namespaces"):                   "/registry/namespaces/",
	corev1.SchemeGroupVersion.WithResource("nodes"):                        "/registry/minions/",
	corev1.SchemeGroupVersion.WithResource("pods"):                         "/registry/pods/",
	corev1.SchemeGroupVersion.WithResource("services"):                     "/registry/services/specs/",
	{Group: "apps", Version: "v1", Resource: "deployments"}:                "/registry/deployments/",
	{Group: "apps", Version: "v1", Resource: "replicasets"}:                "/registry/replicasets/",
	{Group: "apps", Version: "v1", Resource: "daemonsets"}:                 "/registry/daemonsets/",
	{Group: "discovery.k8s.io", Version: "v1", Resource: "endpointslices"}: "/registry/endpointslices/",
	{Group: "networking.k8s.io", Version: "v1", Resource: "ipaddresses"}:   "/registry/ipaddresses/",
	cilium("ciliumnodes"):      "/registry/cilium.io/ciliumnodes/",
	cilium("ciliumendpoints"):  "/registry/cilium.io/ciliumendpoints/",
	cilium("ciliumidentities"): "/registry/cilium.io/ciliumidentities/",
}

// contents is everything that was loaded into a cluster, without what the API
// server draws: UIDs, revisions and times. References by UID name the object.
type contents struct {
	objects map[string]string // kind, namespace and name to JSON
	sizes   map[string]int    // the same to the length of what etcd holds
}

func readContents(t *testing.T, c *Cluster) contents {
	t.Helper()
	client := newDynamic(t, c.AdminConfig(t))
	store := newEtcdClient(t, c.Etcd(), c.Etcd().Endpoints()...)
	lists := map[schema.GroupVersionResource][]unstructured.Unstructured{}
	names := map[types.UID]string{}
	for resource := range loadedKinds {
		list, err := client.Resource(resource).List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		lists[resource] = list.Items
		for _, object := range list.Items {
			names[object.GetUID()] = key(resource, &object)
		}
	}
	all := contents{map[string]string{}, map[string]int{}}
	for resource, prefix := range loadedKinds {
		sizes := storedSizes(t, store, prefix)
		for _, object := range lists[resource] {
			if object.GetName() == "kubernetes" || object.GetName() == "172.20.0.1" {
				continue // the API server's own service: it tells the port
			}
			id := key(resource, &object)
			path := prefix + object.GetName()
			if object.GetNamespace() != "" {
				path = prefix + object.GetNamespace() + "/" + object.GetName()
			}
			all.sizes[id] = sizes[path]
			all.objects[id] = normalized(t, object, names)
		}
	}
	return all
}

func key(resource schema.GroupVersionResource, object *unstructured.Unstructured) string {
	return resource.Resource + " " + object.GetNamespace() + "/" + object.GetName()
}

func storedSizes(t *testing.T, store *clientv3.Client, prefix string) map[string]int {
	t.Helper()
	answer, err := store.Get(t.Context(), prefix, clientv3.WithPrefix())
	if err != nil {
		t.Fatal(err)
	}
	sizes := map[string]int{}
	for _, kv := range answer.Kvs {
		sizes[string(kv.Key)] = len(kv.Value)
	}
	return sizes
}

func normalized(t *testing.T, object unstructured.Unstructured, names map[types.UID]string) string {
	t.Helper()
	object.SetResourceVersion("")
	object.SetCreationTimestamp(metav1.Time{})
	fields := object.GetManagedFields()
	for i := range fields {
		fields[i].Time = nil
	}
	object.SetManagedFields(fields)
	data, err := json.Marshal(object.Object)
	if err != nil {
		t.Fatal(err)
	}
	return uidPattern.ReplaceAllStringFunc(string(data), func(uid string) string {
		if name, ok := names[types.UID(uid)]; ok {
			return name
		}
		return uid
	})
}

func TestLoadIsWhatTheAPIServerWouldStore(t *testing.T) {
	t.Parallel()
	through := small
	through.ThroughAPI = true
	before, running, asked := Start(t, Loaded(small)), Start(t), Start(t)
	running.Load(t, small)
	asked.Load(t, through)

	want := readContents(t, asked)
	if len(want.objects) < 500 {
		t.Fatalf("only %d objects were loaded", len(want.objects))
	}
	for name, c := range map[string]*Cluster{"before the start": before, "into the running cluster": running} {
		got := readContents(t, c)
		for id := range want.objects {
			if got.objects[id] == "" {
				t.Errorf("%s: %s is missing", name, id)
			}
		}
		for id := range got.objects {
			if want.objects[id] == "" {
				t.Errorf("%s: %s is too much", name, id)
			}
		}
		differ := 0
		for id, object := range want.objects {
			if got.objects[id] == "" || got.objects[id] == object && got.sizes[id] == want.sizes[id] {
				continue
			}
			if differ++; differ <= 3 {
				t.Errorf("%s: %s differs: written directly (%d bytes stored)\n%s\nthrough the API server (%d bytes)\n%s",
					name, id, got.sizes[id], got.objects[id], want.sizes[id], object)
			}
		}
		if differ > 0 {
			t.Errorf("%s: %d of %d objects differ", name, differ, len(want.objects))
		}
	}
}

func TestLoadHangsTogether(t *testing.T) {
	t.Parallel()
	c := Start(t, Loaded(small))
	client := newDynamic(t, c.AdminConfig(t))
	all := map[types.UID]unstructured.Unstructured{}
	count := map[string]int{}
	for resource := range loadedKinds {
		list, err := client.Resource(resource).List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for _, object := range list.Items {
			all[object.GetUID()] = object
			count[object.GetKind()]++
		}
	}
	for _, object := range all {
		for _, ref := range object.GetOwnerReferences() {
			owner, ok := all[ref.UID]
			if !ok || owner.GetName() != ref.Name || owner.GetKind() != ref.Kind {
				t.Errorf("%s %s has an owner that is not there: %+v", object.GetKind(), object.GetName(), ref)
			}
		}
		switch object.GetKind() {
		case "Pod", "ReplicaSet", "CiliumNode", "CiliumEndpoint", "EndpointSlice":
			if len(object.GetOwnerReferences()) != 1 {
				t.Errorf("%s %s has %d owners", object.GetKind(), object.GetName(), len(object.GetOwnerReferences()))
			}
		}
	}
	if count["Node"] != 10 || count["CiliumNode"] != 10 || count["Pod"] != 200 || count["CiliumEndpoint"] != 200 || count["CiliumIdentity"] != 22 {
		t.Errorf("loaded %v", count)
	}
	checkCIDRs(t, all)
	checkEndpoints(t, all)
}

// checkCIDRs checks that each CiliumNode has a /24 of 10.0.0.0/8 of its own.
func checkCIDRs(t *testing.T, all map[types.UID]unstructured.Unstructured) {
	t.Helper()
	seen := map[netip.Prefix]string{}
	for _, object := range all {
		if object.GetKind() != "CiliumNode" {
			continue
		}
		cidrs, _, err := unstructured.NestedStringSlice(object.Object, "spec", "ipam", "podCIDRs")
		if err != nil || len(cidrs) != 1 {
			t.Fatalf("%s has the pod CIDRs %v, %v", object.GetName(), cidrs, err)
		}
		cidr := netip.MustParsePrefix(cidrs[0])
		if cidr != cidr.Masked() || cidr.Bits() != 24 || !netip.MustParsePrefix("10.0.0.0/8").Contains(cidr.Addr()) {
			t.Errorf("%s has the pod CIDR %s", object.GetName(), cidr)
		}
		if other, ok := seen[cidr]; ok {
			t.Errorf("%s and %s have the pod CIDR %s", object.GetName(), other, cidr)
		}
		seen[cidr] = object.GetName()
	}
}

// checkEndpoints checks that endpoints with the same identity have the same
// labels and the other way round, and that each has its pod's address.
func checkEndpoints(t *testing.T, all map[types.UID]unstructured.Unstructured) {
	t.Helper()
	labelsOf, numberOf := map[int64]string{}, map[string]int64{}
	addresses := map[string]string{}
	for _, object := range all {
		if object.GetKind() != "CiliumEndpoint" {
			continue
		}
		number, _, _ := unstructured.NestedInt64(object.Object, "status", "identity", "id")
		list, _, _ := unstructured.NestedStringSlice(object.Object, "status", "identity", "labels")
		labels := fmt.Sprint(list)
		if known, ok := labelsOf[number]; ok && known != labels {
			t.Errorf("identity %d has the labels %s and %s", number, known, labels)
		}
		if known, ok := numberOf[labels]; ok && known != number {
			t.Errorf("labels %s have the identities %d and %d", labels, known, number)
		}
		labelsOf[number], numberOf[labels] = labels, number

		pod := all[object.GetOwnerReferences()[0].UID]
		want, _, _ := unstructured.NestedString(pod.Object, "status", "podIP")
		addressing, _, _ := unstructured.NestedSlice(object.Object, "status", "networking", "addressing")
		got := addressing[0].(map[string]any)["ipv4"]
		if got != want {
			t.Errorf("%s has the address %v, its pod %s", object.GetName(), got, want)
		}
		if other, ok := addresses[want]; ok {
			t.Errorf("%s and %s have the address %s", object.GetName(), other, want)
		}
		addresses[want] = object.GetName()
	}
	if len(labelsOf) != 22 {
		t.Errorf("%d label sets, want 22", len(labelsOf))
	}
}

func TestNobodyTouchesALoadButTheGarbageCollector(t *testing.T) {
	t.Parallel()
	c := Start(t)
	c.Load(t, Load{Nodes: 5, Pods: 50}) // defines the kinds after the start
	client := newDynamic(t, c.AdminConfig(t))
	log := c.Audit(t)
	nodes := client.Resource(corev1.SchemeGroupVersion.WithResource("nodes"))
	if err := nodes.Delete(t.Context(), "node-00003", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	until(t, "the CiliumNode of a deleted node to go", func(ctx context.Context) bool {
		_, err := client.Resource(cilium("ciliumnodes")).Get(ctx, "node-00003", metav1.GetOptions{})
		return apierrors.IsNotFound(err)
	})
	time.Sleep(2 * time.Second) // what should not happen gets a chance
	for event := range log.Events(t) {
		switch event.ObjectRef.Resource {
		case "nodes", "pods", "deployments", "replicasets", "daemonsets", "endpointslices", "ciliumendpoints":
			if event.Mutates() && event.User.Username != "devcluster-admin" {
				t.Errorf("%s changed something: %s %s", event.User.Username, event.Verb, event.RequestURI)
			}
		}
	}
	pods, err := client.Resource(corev1.SchemeGroupVersion.WithResource("pods")).List(t.Context(), metav1.ListOptions{})
	if err != nil || len(pods.Items) != 50 {
		t.Errorf("%d pods are left, %v", len(pods.Items), err)
	}
}
