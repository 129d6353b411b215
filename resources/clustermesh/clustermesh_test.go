// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package clustermesh

import (
	"fmt"
	"strings"
	"testing"

	"github.com/skep-operator/skep/resources/kvstore"
	"github.com/skep-operator/skep/resources/operatortest"
	"github.com/skep-operator/skep/resources/stream/slim"
	"github.com/skep-operator/skep/runtime/cell/celltest"
)

func TestCell(t *testing.T) {
	celltest.Check(t, Cell, celltest.InTerm("leader"), celltest.With(operatortest.Resources...),
		celltest.Args("--k8s-api-server="+nowhere, "--clustermesh-enable-endpoint-sync", "--clustermesh-config="+t.TempDir(), "--cluster-name=here", "--cluster-id=1"),
		celltest.OffArgs("--k8s-api-server="+nowhere))
}

// MESH-E1, MESH-1, MESH-9, MESH-12: services of two clusters are known as they are.
func TestServicesOfTwoClusters(t *testing.T) {
	w, a, b := newWorld(t), newPeer(t, "a", 2).publish(""), newPeer(t, "b", 3).publish("")
	a.serve("state", web, "10.2.0.1")
	b.serve("state", web, "10.3.0.1", "10.3.0.2")
	a.Put("cilium/state/services/v1/ab/shop/web", "the prefix of another cluster", 0)
	w.file("a", a.Endpoints()[0])
	w.file("b", b.Endpoints()[0])
	w.file("here", nowhere)
	w.write("a.crt", "no configuration")
	w.write("notes", "no configuration either")
	w.start()
	w.awaitBackends("a", "10.2.0.1")
	w.awaitBackends("b", "10.3.0.1 10.3.0.2")
	a.serve("state", web, "10.2.0.9")
	w.awaitBackends("a", "10.2.0.9")
	b.Delete(b.serviceKey("state", web))
	w.awaitBackends("b", "absent")
	if names, known := w.mesh.Clusters(); !known || strings.Join(names, " ") != "a b" {
		t.Errorf("clusters: %q, %t", names, known)
	}
	w.eventually("nothing is degraded", func() bool { return w.Degraded("clustermesh") == "" })
	w.eventually("metrics", func() bool {
		return w.Metric("clustermesh_remote_clusters", "here", nodeName()) == 2 &&
			w.Metric("clustermesh_remote_cluster_readiness_status", "here", nodeName(), "a") == 1 &&
			w.Metric("clustermesh_global_services", "here") == 1
	})
	w.eventually("the state of a", func() bool {
		s := w.status("a")
		return s.Ready && s.Connected && s.Config.Retrieved && s.Config.ClusterID == 2 && s.NumSharedServices == 1 && s.Synced.Services
	})
}

// MESH-E2, MESH-2, MESH-4: files come, change and go.
func TestFilesComeChangeAndGo(t *testing.T) {
	w, a, other := newWorld(t), newPeer(t, "a", 2).publish(""), newPeer(t, "a", 2).publish("")
	w.start()
	w.eventually("the directory is read", func() bool { _, known := w.mesh.Clusters(); return known })
	a.serve("state", web, "10.2.0.1")
	w.file("a", a.Endpoints()[0])
	w.awaitBackends("a", "10.2.0.1")

	other.serve("state", slim.Key{Namespace: "shop", Name: "new"}, "10.2.0.2")
	other.mark(kvstore.ServicesPrefix)
	w.file("a", other.Endpoints()[0])
	w.awaitBackends("a", "absent") // it is not in the other etcd

	w.remove("a")
	w.eventually("a is forgotten", func() bool {
		names, _ := w.mesh.Clusters()
		return len(names) == 0 && len(w.mesh.Services.Keys()) == 0 && w.Degraded("clustermesh") == ""
	})
	if n := w.Metric("clustermesh_remote_cluster_readiness_status", "here", nodeName(), "a"); n != 0 {
		t.Errorf("the metric of a is %v", n)
	}
}

// MESH-E3, MESH-4, MESH-13: a cluster whose etcd is unreachable keeps what is known of it, and affects no other.
func TestUnreachableCluster(t *testing.T) {
	w, a, b := newWorld(t), newPeer(t, "a", 2).publish(""), newPeer(t, "b", 3).publish("")
	a.serve("state", web, "10.2.0.1")
	b.serve("state", web, "10.3.0.1")
	proxy := a.Proxy(t, a.Members(t)[0].Name)
	w.file("a", a.ProxyEndpoints()[0])
	w.file("b", b.Endpoints()[0])
	w.start()
	w.awaitBackends("a", "10.2.0.1")
	w.awaitBackends("b", "10.3.0.1")
	w.eventually("a is ready", func() bool { return w.status("a").Ready })
	proxy.Refuse(t)
	proxy.Cut(t)
	w.eventually("a is degraded", func() bool { return strings.Contains(w.Degraded("clustermesh.a"), "not ready") })
	b.serve("state", web, "10.3.0.2")
	w.awaitBackends("b", "10.3.0.2")
	if got := w.backends("a", web); got != "10.2.0.1" {
		t.Errorf("a: %s", got)
	}
	if s := w.status("a"); s.Ready || s.Connected || s.NumFailures != 1 || s.LastFailure.IsZero() {
		t.Errorf("state: %+v", s)
	}
	a.Delete(a.serviceKey("state", web))
	proxy.Heal(t)
	w.awaitBackends("a", "absent")
	w.eventually("a is healthy", func() bool { return w.Degraded("clustermesh.a") == "" })
}

// MESH-E4, MESH-11: with a cache TTL, what is known of a cluster that is unreachable for longer is forgotten, and read
// again when it is back.
func TestCacheTTL(t *testing.T) {
	w, a := newWorld(t), newPeer(t, "a", 2).publish("")
	a.serve("state", web, "10.2.0.1")
	proxy := a.Proxy(t, a.Members(t)[0].Name)
	w.file("a", a.ProxyEndpoints()[0])
	w.start("--clustermesh-cache-ttl=1s")
	w.awaitBackends("a", "10.2.0.1")
	revocations := func(n float64) func() bool {
		return func() bool {
			return len(w.Samples("clustermesh_remote_cluster_cache_revocations")) == 1 && w.Metric("clustermesh_remote_cluster_cache_revocations", "a") == n
		}
	}
	w.eventually("nothing was forgotten yet", revocations(0))
	proxy.Refuse(t)
	proxy.Cut(t)
	w.awaitBackends("a", "absent")
	w.eventually("that it was forgotten is counted", revocations(1))
	proxy.Heal(t)
	a.mark(kvstore.ServicesPrefix)
	w.awaitBackends("a", "10.2.0.1")
}

// MESH-21, K9 of the contract's tenants.md: a cluster whose configuration changes again and again is read more and more rarely, and is named. It is read when
// that is over.
func TestConfigurationThatFlips(t *testing.T) {
	w, a := newWorld(t), newPeer(t, "a", 2).publish("")
	a.serve("state", web, "10.2.0.1")
	w.file("a", a.Endpoints()[0])
	w.start()
	w.awaitBackends("a", "10.2.0.1")
	w.eventually("it is named", func() bool {
		a.id = 5 - a.id
		a.publish("")
		return strings.Contains(w.Degraded("clustermesh.a"), "changes again and again")
	})
	a.serve("state", web, "10.2.0.2")
	w.awaitBackends("a", "10.2.0.2")
	w.eventually("it is healthy again", func() bool { return w.Degraded("clustermesh.a") == "" })
}

// MESH-E5, MESH-7, MESH-8: a cached cluster that marks what is complete is not read before the mark.
func TestMarksAndCaches(t *testing.T) {
	w, a := newWorld(t), newPeer(t, "a", 2).publish(`"syncedCanaries":true,"cached":true`)
	a.serve("cache", web, "10.2.0.1")
	a.serve("state", web, "10.9.9.9")
	w.file("a", a.Endpoints()[0])
	w.start("--clustermesh-sync-timeout=100ms")
	w.eventually("a is reported", func() bool {
		return strings.Contains(w.Degraded("clustermesh.a"), "not read within --clustermesh-sync-timeout (100ms)")
	})
	if got := w.backends("a", web); got != "unknown" {
		t.Errorf("before the mark: %s", got)
	}
	a.mark("cilium/cache/services/v1")
	w.awaitBackends("a", "10.2.0.1")
	w.eventually("a is healthy", func() bool { return w.Degraded("clustermesh.a") == "" })
}

// MESH-E6, MESH-5, MESH-6: a cluster whose configuration does not fit is not read; what it said before stays.
func TestRefusedClusters(t *testing.T) {
	w, a, b := newWorld(t), newPeer(t, "a", 2).publish(""), newPeer(t, "b", 2)
	a.serve("state", web, "10.2.0.1")
	b.serve("state", web, "10.3.0.1")
	w.file("a", a.Endpoints()[0])
	w.start()
	w.awaitBackends("a", "10.2.0.1")
	w.file("b", b.Endpoints()[0])
	reported := func(text string) {
		t.Helper()
		w.eventually("b: "+text, func() bool { return strings.Contains(w.Degraded("clustermesh.b"), text) })
	}
	reported("the cluster has not published its configuration")
	b.publish("")
	reported("its ID 2 is that of cluster a")
	b.id = 1
	b.publish("")
	reported("its ID 1 is that of this cluster")
	b.id = 256
	b.publish("")
	reported("its ID 256 is above the maximum of this cluster, 255")
	b.id = 0
	b.publish("")
	reported("it has no ID")
	b.Put("cilium/cluster-config/b", "{", 0)
	reported("its configuration is no JSON")
	if got := w.backends("b", web); got != "unknown" {
		t.Errorf("b: %s", got)
	}
	b.id = 3
	b.serve("state", web, "10.3.0.1")
	b.publish("")
	w.awaitBackends("b", "10.3.0.1")
	b.id = 0
	b.publish("")
	reported("it has no ID")
	if got := w.backends("b", web); got != "10.3.0.1" {
		t.Errorf("b, refused later: %s", got)
	}
	if got := w.backends("a", web); got != "10.2.0.1" {
		t.Errorf("a: %s", got)
	}
}

// MESH-3: files that cannot be used are reported, and a directory that cannot be read removes no cluster.
func TestUnusableFiles(t *testing.T) {
	w, a := newWorld(t), newPeer(t, "a", 2).publish("")
	a.serve("state", web, "10.2.0.1")
	w.file("a", a.Endpoints()[0])
	w.file("Not_a_name", nowhere)
	w.start()
	w.awaitBackends("a", "10.2.0.1")
	w.eventually("the name is reported", func() bool {
		return strings.Contains(w.Degraded("clustermesh.directory"), `"Not_a_name" is no name of a cluster`)
	})
	w.remove("Not_a_name")
	w.eventually("nothing is degraded", func() bool { return w.Degraded("clustermesh") == "" })
	w.write("a", "endpoints: [") // known, and no longer a configuration
	w.eventually("the file is reported", func() bool { return strings.Contains(w.Degraded("clustermesh.a"), "etcd client configuration") })
	if got := w.backends("a", web); got != "10.2.0.1" {
		t.Errorf("a: %s", got)
	}
	w.file("a", a.Endpoints()[0])
	a.mark(kvstore.ServicesPrefix)
	a.serve("state", web, "10.2.0.2")
	w.awaitBackends("a", "10.2.0.2")
}

// MESH-10: a value that cannot be used leaves the one before, and is counted.
func TestUnreadableValues(t *testing.T) {
	w, a := newWorld(t), newPeer(t, "a", 2).publish("")
	a.serve("state", web, "10.2.0.1")
	bad := slim.Key{Namespace: "shop", Name: "bad"}
	a.serve("state", bad, "no address")
	a.Put(a.serviceKey("state", web)+"/more", "{}", 0)
	w.file("a", a.Endpoints()[0])
	w.start()
	w.awaitBackends("a", "10.2.0.1")
	if got := w.backends("a", bad); got != "unknown" {
		t.Errorf("a value that never could be read: %s", got)
	}
	for _, value := range []string{"{", `{"cluster":"b","namespace":"shop","name":"web","clusterID":2}`, `{"cluster":"a","namespace":"shop","name":"web","clusterID":0}`} {
		a.Put(a.serviceKey("state", web), value, 0)
	}
	w.eventually("both are counted", func() bool { return w.Metric("clustermesh_unreadable_values", "here", "a") == 2 })
	if got := w.backends("a", web); got != "10.2.0.1" {
		t.Errorf("after values that cannot be used: %s", got)
	}
	a.Delete(a.serviceKey("state", web))
	w.awaitBackends("a", "absent")
}

// MESH-E8, MESH-8: an etcd that starts with other data takes nothing away before the cluster marks it as complete.
func TestReplacedData(t *testing.T) {
	for _, capabilities := range []string{`"syncedCanaries":true`, ""} {
		t.Run(capabilities, func(t *testing.T) {
			w, a := newWorld(t), newPeer(t, "a", 2)
			a.Put("cilium/other", "", 0)
			empty := a.snapshot(t)
			a.publish(capabilities)
			for i := range 50 { // so that the revision is one that the new data do not reach
				a.serve("state", web, fmt.Sprint("10.2.1.", i))
			}
			a.serve("state", web, "10.2.0.1")
			a.mark(kvstore.ServicesPrefix)
			w.file("a", a.Endpoints()[0])
			w.start()
			w.awaitBackends("a", "10.2.0.1")
			a.Restore(t, empty)
			a.publish(capabilities)
			other := slim.Key{Namespace: "shop", Name: "other"}
			a.serve("state", other, "10.2.0.2")
			w.eventually("the cluster is read again", func() bool { return w.status("a").Connected })
			if got := w.backends("a", web); got != "10.2.0.1" {
				t.Errorf("before the mark: %s", got)
			}
			a.mark(kvstore.ServicesPrefix)
			w.awaitBackends("a", "absent")
			w.eventually("the other service is there", func() bool { return w.backends("a", other) == "10.2.0.2" })
		})
	}
}

// MESH-20, MESH-E11; number B21 of the contract's bgp.md: a cluster that publishes EndpointSlices alone has no services, and says so.
func TestModesOfServices(t *testing.T) {
	w, a := newWorld(t), newPeer(t, "a", 2).publish(`"endpointSlicesExportMode":"services-and-endpointslices"`)
	a.serve("state", web, "10.2.0.1")
	w.file("a", a.Endpoints()[0])
	w.start()
	w.awaitBackends("a", "10.2.0.1")
	w.eventually("nothing is degraded", func() bool { return w.Degraded("clustermesh") == "" })
	a.publish(`"endpointSlicesExportMode":"endpointslices-only"`)
	w.awaitBackends("a", "absent")
	w.eventually("health says so", func() bool { return strings.Contains(w.Degraded("clustermesh.a"), "it publishes EndpointSlices alone") })
	a.publish(`"endpointSlicesExportMode":"other"`)
	w.eventually("the mode is refused", func() bool {
		return strings.Contains(w.Degraded("clustermesh.a"), `its mode "other" of exporting EndpointSlices is not known`)
	})
	a.publish("")
	a.mark(kvstore.ServicesPrefix)
	w.awaitBackends("a", "10.2.0.1")
	w.eventually("nothing is degraded", func() bool { return w.Degraded("clustermesh") == "" })
}
