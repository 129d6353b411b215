// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package main

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/skep-operator/skep/resources/api"
	v2 "github.com/skep-operator/skep/resources/api/v2"
	"github.com/skep-operator/skep/resources/clustertest"
	"github.com/skep-operator/skep/resources/kvstore/kvstoretest"
	"github.com/skep-operator/skep/runtime/seedtest"
)

// Invariant 5, in etcd: no live key is deleted because its object was not seen yet. An operator begins its term while a
// stream shows nothing, or, a warm standby, while it shows the half of what there is. In the long form each stream does both,
// else the seed decides. So it is with what follows from a remote cluster: slices, ServiceImports, derived Services, exports.
func TestInvariant5InEtcd(t *testing.T) {
	seed := seedtest.Seed(t)
	for i, late := range []string{"services", "endpointslices", "ciliumnodes", "pods", "serviceexports"} {
		empty := (uint64(i)+seed)%2 == 0
		if empty || seedtest.Soak() {
			t.Run(late+" empty", func(t *testing.T) { newLiveKeys(t).withEmptyView(late) })
		}
		if !empty || seedtest.Soak() {
			t.Run(late+" half loaded", func(t *testing.T) { newLiveKeys(t).withHalfAView(late) })
		}
	}
}

// liveKeys are keys of objects that exist, as an earlier operator and agents have left them, and garbage among them.
type liveKeys struct {
	*etcdDuties
	want   converged
	record *kvstoretest.Record

	mu      sync.Mutex
	deleted []string // of what follows from the remote cluster
}

func newLiveKeys(t *testing.T) *liveKeys {
	w := newWorld(t)
	l := &liveKeys{etcdDuties: newEtcdDuties(w, kvstoretest.Start(t, 1), "kvstore")}
	l.want = converged{map[string]string{}, map[string]string{}, map[string]string{}}
	l.record = l.etcd.Follow("cilium/state/", 1)
	l.joinMesh()
	for _, resource := range []schema.GroupVersionResource{endpointSlices, services, api.ServiceImportResource} {
		l.witness(resource, func(kind watch.EventType, u *unstructured.Unstructured) { l.mourn(kind, resource, u) })
	}
	l.live("early", false)
	l.dead("early")
	return l
}

// live makes objects, and their keys as others write them. Keys of Services that an operator
// writes are waited for: it takes one that it finds before it sees the Service for garbage.
func (l *liveKeys) live(prefix string, written bool) {
	l.t.Helper()
	for i := range 5 {
		name, n := fmt.Sprint(prefix, "-", i), len(l.want.identities)
		l.service(name, fmt.Sprint("10.1.1.", n))
		l.want.services[l.serviceKey(name)] = fmt.Sprintf(`"10.1.1.%d"`, n)
		if !written {
			l.etcd.Put(l.serviceKey(name), "{}", 0)
		}
		if prefix == "early" { // no operator runs, which would take it for garbage
			l.etcd.Put(exportKeys+l.namespace+"/"+name, "{}", 0)
		}
		l.a.serve(l.named(name), 80, addressesOf(n, 1+i)...)
		if i%2 == 0 {
			l.a.export(l.named(name), 2001, "Headless", 80)
		}
		l.mesh.serviceExport(l.namespace, name)

		l.addNode(name, fmt.Sprintf("10.2.%d.0/24", n))
		l.want.nodes[nodeKeys+name] = `"` + name + `"`
		l.etcd.Put(nodeKeys+name, agentKey(name, ""), 0)

		// This node has an agent, and no CiliumNode yet.
		l.agentPod(name + "-agent")
		l.want.nodes[nodeKeys+name+"-agent"] = `"` + name + `-agent"`
		l.etcd.Put(nodeKeys+name+"-agent", agentKey(name+"-agent", ""), 0)

		l.identity(n, true)
		l.want.identities[identityKey(n)] = labelsOf(n)
	}
	if written {
		eventually(l.t, "the keys of Services are written", func() bool { return l.holds(serviceKeys+l.namespace+"/", l.want.services) })
	}
}

func (l *liveKeys) agentPod(node string) {
	l.t.Helper()
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "agent-on-" + node, Labels: map[string]string{"k8s-app": "cilium"}}}
	pod.Spec = corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{Name: "c", Image: "i"}}}
	eventually(l.t, "a pod is made", func() bool { // when the service account is there
		_, err := l.core.CoreV1().Pods(l.namespace).Create(l.t.Context(), pod, metav1.CreateOptions{})
		return err == nil
	})
}

// dead makes keys of a Service, of a node and of an identity that do not exist, or are not used, any more.
func (l *liveKeys) dead(name string) {
	l.t.Helper()
	l.etcd.Put(l.serviceKey("garbage-"+name), "{}", 0)
	l.etcd.Put(exportKeys+l.namespace+"/garbage-"+name, "{}", 0)
	l.mesh.apply(endpointSlices, "EndpointSlice", l.namespace, "garbage-"+name, map[string]any{
		"metadata": map[string]any{"labels": map[string]any{
			discoveryv1.LabelManagedBy: meshManager, discoveryv1.LabelServiceName: "garbage-" + name, sourceCluster: "a",
		}},
		"addressType": "IPv4", "endpoints": []any{map[string]any{"addresses": []any{"10.40.0.1"}}},
	})
	l.etcd.Put(nodeKeys+"garbage-"+name, agentKey("garbage-"+name, ""), 0)
	n := 800 + len(l.want.identities)
	l.etcd.Put(identityKey(n), labelsOf(n), 0)
}

// collected waits until the garbage is gone that an operator finds without a stream.
func (l *liveKeys) collected(o *operator, without string) {
	l.t.Helper()
	for folder, streams := range map[string][]string{
		serviceKeys + l.namespace + "/": {"services", "endpointslices"}, exportKeys + l.namespace + "/": {"services", "serviceexports"}, nodeKeys: {"ciliumnodes", "pods"}, identityKeys: nil,
	} {
		late := false
		for _, s := range streams {
			late = late || s == without
		}
		if !late {
			o.until("the garbage below "+folder+" is gone", func() bool {
				for _, key := range l.keys(folder) {
					if strings.Contains(key, "garbage-") || l.isDeadIdentity(key) {
						return false
					}
				}
				return true
			})
		}
	}
}

// mourn records what is deleted.
func (l *liveKeys) mourn(kind watch.EventType, resource schema.GroupVersionResource, u *unstructured.Unstructured) {
	isOurs := resource == api.ServiceImportResource || u.GetLabels()[sourceCluster] != ""
	if kind == watch.Deleted && isOurs && u.GetNamespace() == l.namespace && !strings.HasPrefix(u.GetName(), "garbage-") {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.deleted = append(l.deleted, resource.Resource+" "+u.GetName())
	}
}

func (l *liveKeys) isDeadIdentity(key string) bool {
	return strings.HasPrefix(key, identityKeys) && l.want.identities[key] == ""
}

// unharmed checks that nothing was deleted but garbage.
func (l *liveKeys) unharmed() {
	l.t.Helper()
	for _, event := range l.record.Events() {
		key := string(event.Kv.Key)
		if event.Type == clientv3.EventTypeDelete && !strings.Contains(key, "garbage-") && !l.isDeadIdentity(key) {
			l.t.Errorf("%s was deleted at revision %d, and is live", key, event.Kv.ModRevision)
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.deleted) > 0 {
		l.t.Errorf("these were deleted, and are live: %q", l.deleted)
	}
}

// arrives waits until the store is as the objects are.
func (l *liveKeys) arrives(o *operator) {
	l.t.Helper()
	o.until("the store has converged", func() bool { return l.converged(l.want) })
	o.until("slices of no Service are gone", func() bool {
		objects, err := l.mesh.objects(l.namespace)
		return err == nil && !slices.ContainsFunc(objects.slices, func(s discoveryv1.EndpointSlice) bool { return strings.HasPrefix(s.Name, "garbage-") })
	})
	l.unharmed()
}

func (l *liveKeys) operator(user string) (*operator, *clustertest.Proxy) {
	l.t.Helper()
	return l.run(user, nil, l.withDuties("--cilium-pod-namespace="+l.namespace)...)
}

// withEmptyView lets an operator begin while a stream shows nothing.
func (l *liveKeys) withEmptyView(late string) {
	proxy := l.NewProxy(l.t)
	held := proxy.HoldWatch(l.t, late, 0)
	lists := proxy.Answer(l.t, 503, clustertest.Match{Verbs: []string{"list"}, Resources: []string{late}}) // with which a stream that gets nothing for seconds begins again
	kubeconfig := proxy.UserKubeconfig(l.t, "blind", "system:masters")
	o := start(l.t, kubeconfig, nil, append([]string{"--k8s-namespace=" + l.namespace, "--enable-ipv6=false", "--cluster-pool-ipv4-cidr=10.0.0.0/8"},
		l.withDuties("--cilium-pod-namespace="+l.namespace)...)...)
	o.leads()
	l.collected(o, late)
	l.live("later", late != "services" && late != "endpointslices")
	l.identity(sentinelIdentity, false)
	l.collected(o, late) // another sweep has ended
	l.unharmed()
	lists.Remove(l.t)
	held.Remove(l.t)
	l.arrives(o)
}

// withHalfAView lets a standby, which has seen the half, take over.
func (l *liveKeys) withHalfAView(late string) {
	first, _ := l.operator("first")
	first.leads()
	l.arrives(first)
	standby, proxy := l.operator("standby")
	standby.says("standing by", 1)
	standby.until("its streams are synced", func() bool {
		row := standby.stream(late)
		return len(row) > 2 && row[2] != "waiting"
	})
	held := proxy.HoldWatch(l.t, late, 0)
	l.live("later", true)
	l.arrives(first)
	if code := first.stop(); code != 0 {
		l.t.Errorf("exit code %d", code)
	}
	standby.leads()
	l.dead("later")
	l.collected(standby, late)
	l.unharmed()
	held.Remove(l.t)
	l.arrives(standby)
}

// Invariant 5, in etcd: what would delete an implausible share of the nodes, or of the identities, deletes nothing, and says
// so; other duties go on.
func TestInvariant5ImplausibleSharesInEtcd(t *testing.T) {
	d := newEtcdDuties(newWorld(t), kvstoretest.Start(t, 1), "kvstore")
	want := d.populate()
	o, _ := d.run("cautious", nil, d.withDuties("--sweep-max-share=0.5")...)
	o.leads()
	o.until("the store has converged", func() bool { return d.converged(want) })
	if _, err := d.etcd.Client.Revoke(t.Context(), d.agents); err != nil { // no agent is left
		t.Fatal(err)
	}
	o.until("the operator writes the keys of all nodes", func() bool { return d.holds(nodeKeys, want.nodes) })
	if code := o.stop(); code != 0 { // a sweep that runs meanwhile may see the nodes go one by one
		t.Errorf("exit code %d", code)
	}
	record := d.etcd.Follow("cilium/state/", d.etcd.Revision()+1)
	for i := range len(want.nodes) - 5 {
		if err := d.dynamic.Resource(v2.CiliumNodeResource).Delete(t.Context(), fmt.Sprint("node-", i), metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	o, _ = d.run("cautious-again", nil, d.withDuties("--sweep-max-share=0.5")...)
	o.until("both sweeps say that they stop", func() bool {
		s, ok := o.status()
		text := s.degraded()
		return ok && strings.Contains(text, "nodesync.") && strings.Contains(text, "identitygc.kvstore.") && strings.Count(text, "sweep-max-share") >= 2
	})
	d.service("meanwhile", "10.1.2.1")
	o.until("a Service is exported", func() bool { return d.etcd.Get(d.serviceKey("meanwhile")) != nil })
	for _, event := range record.Events() {
		if event.Type == clientv3.EventTypeDelete {
			t.Errorf("%s was deleted", event.Kv.Key)
		}
	}
}
