// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	v2 "github.com/skep-operator/skep/resources/api/v2"
	"github.com/skep-operator/skep/resources/kvstore"
	"github.com/skep-operator/skep/resources/kvstore/kvstoretest"
)

// Keys of the cluster c1 and of users of identities, as etcd has them.
const (
	serviceKeys  = "cilium/state/services/v1/c1/"
	nodeKeys     = "cilium/state/nodes/v1/c1/"
	identityKeys = "cilium/state/identities/v1/id/"
	userKeys     = "cilium/state/identities/v1/value/"
	markerKeys   = "cilium/synced/c1/"
	initLockKeys = "cilium/.initlock/"

	servicesMarker = markerKeys + kvstore.ServicesPrefix
	exportsMarker  = markerKeys + kvstore.ServiceExportsPrefix
)

// firstIdentity is the number of the first identity of the cluster with the id 1 that tests make.
const firstIdentity = 1<<16 + 1000

// etcdDuties are the objects and keys that the duties of etcd work with: global Services with EndpointSlices, CiliumNodes,
// of which some have an agent that writes the key, and identities that agents use.
type etcdDuties struct {
	*world
	etcd   *kvstoretest.Etcd
	agents clientv3.LeaseID // of all agents; it lives as long as the test
	mode   string           // of identities
	mesh   *mesh            // nil without remote clusters
	a      *peer            // a remote cluster, whose keys are in the same etcd
}

func newEtcdDuties(w *world, e *kvstoretest.Etcd, mode string) *etcdDuties {
	w.t.Helper()
	w.define("CiliumNode", "CiliumIdentity")
	d := &etcdDuties{world: w, etcd: e, agents: e.Grant(time.Hour), mode: mode}
	w.t.Cleanup(func() {
		ctx := context.WithoutCancel(w.t.Context())
		_ = w.dynamic.Resource(v2.CiliumIdentityResource).DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{})
		w.clearServices(ctx)
	})
	return d
}

// joinMesh adds the duties of remote clusters.
func (d *etcdDuties) joinMesh() {
	d.t.Helper()
	d.mesh = newMesh(d.world, d.etcd, d.namespace)
	d.a = d.mesh.join("a", d.etcd, d.etcd.Endpoints()[0])
}

func (d *etcdDuties) named(name string) types.NamespacedName {
	return types.NamespacedName{Namespace: d.namespace, Name: name}
}

// clearServices deletes the Services and EndpointSlices of the test: others run in the same cluster.
func (w *world) clearServices(ctx context.Context) {
	all, _ := w.core.CoreV1().Services(w.namespace).List(ctx, metav1.ListOptions{})
	for _, s := range all.Items {
		_ = w.core.CoreV1().Services(w.namespace).Delete(ctx, s.Name, metav1.DeleteOptions{})
	}
	_ = w.core.DiscoveryV1().EndpointSlices(w.namespace).DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{})
}

// withDuties are the options of an operator that runs all duties of an etcd with these endpoints. Without remote clusters it writes keys
// of nodes, which it does up to 1.18. Services of other tests do not count. Garbage is looked for all the time.
func (d *etcdDuties) withDuties(args ...string) []string {
	if d.mesh != nil {
		args = append(args, d.mesh.args()...)
	} else {
		args = append(args, "--cilium-release=1.18")
	}
	return withEtcd(d.etcd, append([]string{
		"--identity-allocation-mode=" + d.mode, "--k8s-service-proxy-name=" + d.namespace, "--identity-gc-interval=1s", "--sweep-max-share=1",
	}, args...)...)
}

// service makes a global Service, whose endpoint has an address.
func (d *etcdDuties) service(name, address string) {
	d.t.Helper()
	s := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, Annotations: map[string]string{"service.cilium.io/global": "true"},
			Labels: map[string]string{"service.kubernetes.io/service-proxy-name": d.namespace},
		},
		Spec: corev1.ServiceSpec{
			ClusterIP: corev1.ClusterIPNone, Ports: []corev1.ServicePort{{Name: "http", Port: 80}},
			IPFamilies: []corev1.IPFamily{corev1.IPv4Protocol}, IPFamilyPolicy: new(corev1.IPFamilyPolicySingleStack), // by default it has two
		},
	}
	if _, err := d.core.CoreV1().Services(d.namespace).Create(d.t.Context(), s, metav1.CreateOptions{}); err != nil {
		d.t.Fatal(err)
	}
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Name: name, Labels: map[string]string{discoveryv1.LabelServiceName: name}},
		AddressType: discoveryv1.AddressTypeIPv4, Endpoints: []discoveryv1.Endpoint{{Addresses: []string{address}}},
		Ports: []discoveryv1.EndpointPort{{Name: new("http"), Port: new(int32(8080))}},
	}
	if _, err := d.core.DiscoveryV1().EndpointSlices(d.namespace).Create(d.t.Context(), slice, metav1.CreateOptions{}); err != nil {
		d.t.Fatal(err)
	}
}

// move gives the endpoint of a Service another address.
func (d *etcdDuties) move(service, address string) {
	d.t.Helper()
	patch := fmt.Sprintf(`[{"op":"replace","path":"/endpoints/0/addresses/0","value":%q}]`, address)
	_, err := d.core.DiscoveryV1().EndpointSlices(d.namespace).Patch(d.t.Context(), service, types.JSONPatchType, []byte(patch), metav1.PatchOptions{})
	if err != nil {
		d.t.Fatal(err)
	}
}

func (d *etcdDuties) removeService(name string) {
	d.t.Helper()
	for _, err := range []error{
		d.core.CoreV1().Services(d.namespace).Delete(d.t.Context(), name, metav1.DeleteOptions{}),
		d.core.DiscoveryV1().EndpointSlices(d.namespace).Delete(d.t.Context(), name, metav1.DeleteOptions{}),
	} {
		if err != nil {
			d.t.Fatal(err)
		}
	}
}

func (d *etcdDuties) serviceKey(name string) string { return serviceKeys + d.namespace + "/" + name }

// boot gives a CiliumNode another boot id, which is part of its key.
func (d *etcdDuties) boot(node, id string) {
	d.t.Helper()
	patch := fmt.Sprintf(`{"spec":{"bootid":%q}}`, id)
	if _, err := d.dynamic.Resource(v2.CiliumNodeResource).Patch(d.t.Context(), node, types.MergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
		d.t.Fatal(err)
	}
}

// agentKey is the value of a node's key as its agent writes it, or an operator before this one.
func agentKey(node, boot string) string {
	return fmt.Sprintf(`{"Name":%q,"Cluster":"c1","Source":"local","BootID":%q}`, node, boot)
}

func labelsOf(n int) string {
	return fmt.Sprintf("k8s:app=app-%d;k8s:io.cilium.k8s.policy.cluster=c1;", n)
}

func identityKey(n int) string { return identityKeys + fmt.Sprint(firstIdentity+n) }
func userKey(n int) string     { return userKeys + labelsOf(n) + "/10.0.0.1" }

// allocate makes an identity as an agent does, or uses it again. It may be repeated.
func allocate(ctx context.Context, d *etcdDuties, n int) error {
	master := clientv3.OpPut(identityKey(n), labelsOf(n))
	user := clientv3.OpPut(userKey(n), fmt.Sprint(firstIdentity+n), clientv3.WithLease(d.agents))
	_, err := d.etcd.Client.Txn(ctx).If(clientv3.Compare(clientv3.Version(identityKey(n)), "=", 0)).
		Then(master, user).Else(user).Commit()
	return err
}

// identity makes an identity; one that is not used is garbage. In the modes of two writes it is an object, too.
func (d *etcdDuties) identity(n int, used bool) {
	d.t.Helper()
	d.identityObject(n)
	if !used {
		d.etcd.Put(identityKey(n), labelsOf(n), 0)
		return
	}
	if err := allocate(d.t.Context(), d, n); err != nil {
		d.t.Fatal(err)
	}
}

func (d *etcdDuties) identityObject(n int) {
	d.t.Helper()
	if d.mode == "kvstore" {
		return
	}
	u := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "cilium.io/v2", "kind": "CiliumIdentity", "metadata": map[string]any{"name": fmt.Sprint(firstIdentity + n)},
		"security-labels": map[string]any{"k8s:app": fmt.Sprint("app-", n)},
	}}
	if _, err := d.dynamic.Resource(v2.CiliumIdentityResource).Create(d.t.Context(), u, metav1.CreateOptions{}); err != nil {
		d.t.Fatal(err)
	}
}

// keys are all keys with a prefix.
func (d *etcdDuties) keys(prefix string) []string {
	d.t.Helper()
	resp, err := d.etcd.Client.Get(d.t.Context(), prefix, clientv3.WithPrefix())
	if err != nil {
		d.t.Fatal(err)
	}
	var all []string
	for _, kv := range resp.Kvs {
		all = append(all, string(kv.Key))
	}
	return all
}

// holds reports whether the keys with a prefix are these and no others, and have these texts.
func (d *etcdDuties) holds(prefix string, texts map[string]string) bool {
	d.t.Helper()
	return d.differs(prefix, texts) == nil
}

func (d *etcdDuties) differs(prefix string, texts map[string]string) error {
	d.t.Helper()
	ctx, cancel := context.WithTimeout(d.t.Context(), time.Second)
	defer cancel()
	resp, err := d.etcd.Client.Get(ctx, prefix, clientv3.WithPrefix())
	if err != nil {
		return err
	}
	missing := maps.Clone(texts)
	for _, kv := range resp.Kvs {
		text, wanted := texts[string(kv.Key)]
		if !wanted || !strings.Contains(string(kv.Value), text) {
			return fmt.Errorf("%s is %q, and not %q", kv.Key, kv.Value, text)
		}
		delete(missing, string(kv.Key))
	}
	if len(missing) > 0 {
		return fmt.Errorf("missing: %v", slices.Sorted(maps.Keys(missing)))
	}
	return nil
}
