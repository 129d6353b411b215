// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package main

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/skep-operator/skep/resources/api"
	"github.com/skep-operator/skep/resources/clustertest"
	"github.com/skep-operator/skep/resources/kvstore/kvstoretest"
)

// Invariants 1, 4 and 5, of remote clusters: an etcd that refuses, is silent, has lost all its data, or has the half of them
// again and no marker, deletes nothing, while an operator runs and at its start, and hurts its own cluster only. What the
// cluster has not published when it marks its data as complete is deleted, and no more. A cluster with the ID of another has
// no part in it.
func TestInvariant5RemoteEtcds(t *testing.T) {
	r := newRemoteEtcds(t)
	o, _ := r.run("first", nil, r.options()...)
	r.awaits(o, "what both clusters publish")

	r.twin(o)
	r.door.Refuse(t)
	r.door.Cut(t)
	r.isDegraded(o, "clustermesh.a")
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
	writes := r.requests(audit, "second").writes().which(func(e clustertest.AuditEvent) bool { return !strings.HasPrefix(e.ObjectRef.Name, "both-b-") })
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

	delete(r.a.services, r.key("of-a"))
	delete(r.a.exports, r.key("far"))
	r.a.mark()
	r.awaits(o, "a is complete")
	r.deletedOnly("endpointslices of-a-a-", "serviceimports far", "services "+derivedServiceName(r.key("far")))
	o.until("health is well", func() bool { s, ok := o.status(); return ok && len(s.Degraded) == 0 })
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
	twin := r.joinHere("twin")
	r.peers = r.peers[:2]
	twin.id = r.a.id
	twin.serve(r.key("both"), 80, "10.33.0.1")
	twin.fill()
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
	r.mu.Lock()
	defer r.mu.Unlock()
	seen := map[string]bool{}
	for _, has := range r.deleted {
		expected := false
		for _, w := range want {
			if strings.HasPrefix(has, w) {
				expected, seen[w] = true, true
			}
		}
		if !expected {
			r.t.Errorf("%s was deleted", has)
		}
	}
	if len(seen) != len(want) {
		r.t.Errorf("%q were deleted, and %q are to be", r.deleted, want)
	}
}
