// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package clusterconfig

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/skep-operator/skep/resources/cluster"
	"github.com/skep-operator/skep/resources/k8s"
	"github.com/skep-operator/skep/resources/kvstore"
	"github.com/skep-operator/skep/resources/kvstore/kvstoretest"
	"github.com/skep-operator/skep/resources/operatortest"
	"github.com/skep-operator/skep/runtime/cell"
	"github.com/skep-operator/skep/runtime/job"
)

const (
	key   = "cilium/cluster-config/cluster1"
	value = `{"id":1,"capabilities":{"maxConnectedClusters":255,"serviceExportsEnabled":false}}`
)

const (
	withSlicesToo = `{"id":1,"capabilities":{"maxConnectedClusters":255,"serviceExportsEnabled":false,"endpointSlicesExportMode":"services-and-endpointslices"}}`
	slicesAlone   = `{"id":1,"capabilities":{"maxConnectedClusters":255,"serviceExportsEnabled":false,"endpointSlicesExportMode":"endpointslices-only"}}`
)

func lead(t *testing.T, endpoint string, args ...string) *operatortest.Operator {
	t.Helper()
	return leadWith(t, Cell, endpoint, args...)
}

func leadWith(t *testing.T, duty cell.Cell, endpoint string, args ...string) *operatortest.Operator {
	t.Helper()
	args = append([]string{"--cluster-name=cluster1", "--cluster-id=1"}, args...)
	return operatortest.Start(t, cell.Set(kvstore.Cell, duty, marking), "", kvstoretest.Args(endpoint, args...)...)
}

// marking is another duty: what it writes is there when others could have been
// at work, too.
var marking = cell.Module("marking", "Writes a key", cell.Job("mark", func(c kvstore.Client) job.Job {
	return job.OneShot(func(ctx context.Context) error {
		if err := c.AwaitConnected(ctx); err != nil {
			return err
		}
		return c.Write(k8s.WithCause(ctx, &k8s.Cause{Rule: "marking"}), kvstore.Put(marker, nil))
	}, job.Retry(time.Second, time.Second))
}))

const marker = "cilium/marker"

// Number 15 of the contract's heartbeat-and-locks.md, of a cluster that writes no EndpointSlices; CC-2 and CC-3; CC-E5 and CC-E6.
func TestEncode(t *testing.T) {
	for _, c := range []struct {
		id, most uint32
		mcs      bool
		slices   bool
		mode     string
		want     string
	}{
		{1, 255, false, false, "prefer-legacy", value},
		{1, 255, false, true, "prefer-legacy", withSlicesToo},
		{1, 255, false, true, "prefer-endpointslice", withSlicesToo},
		{1, 255, false, true, "only-endpointslice", slicesAlone},
		{1, 255, false, false, "only-endpointslice", value},
		{1, 511, true, false, "prefer-legacy", `{"id":1,"capabilities":{"maxConnectedClusters":511,"serviceExportsEnabled":true}}`},
		{511, 511, false, false, "prefer-legacy", `{"id":511,"capabilities":{"maxConnectedClusters":511,"serviceExportsEnabled":false}}`},
	} {
		got, err := encode(cluster.Config{ClusterID: c.id, MaxConnectedClusters: c.most, ClusterMeshEnableMCSAPI: c.mcs, ClusterMeshServiceV2: c.mode}, c.slices)
		if err != nil || string(got) != c.want {
			t.Errorf("got  %s, %v\nwant %s", got, err, c.want)
		}
	}
}

// CC-1 to CC-3; CC-E5 and CC-E6, in etcd.
func TestPublished(t *testing.T) {
	t.Parallel()
	e := kvstoretest.Start(t, 1)
	o := lead(t, e.Endpoints()[0])
	operatortest.Eventually(t, "the key", func() bool { return e.Get(key) != nil })
	kv := e.Get(key)
	ttl, err := e.Client.TimeToLive(t.Context(), clientv3.LeaseID(kv.Lease))
	if string(kv.Value) != value || err != nil || kv.Lease == 0 || ttl.GrantedTTL != 900 {
		t.Errorf("it is %s on lease %x of %d s, %v", kv.Value, kv.Lease, ttl.GrantedTTL, err)
	}
	writes := func() (n int) {
		for _, w := range o.Book.Writes(0) {
			if w.Module == "clusterconfig" && w.Resource == kvstore.ClusterConfigPrefix && w.Cause.Rule == "clusterconfig publish" {
				n++
			}
		}
		return n
	}
	operatortest.Eventually(t, "the write is in the book", func() bool { return writes() > 0 })
	if n := writes(); n != 1 || kv.Version != 1 {
		t.Errorf("%d writes are in the book, %d in etcd", n, kv.Version)
	}
	o.Stop()
	lead(t, e.Endpoints()[0], "--clustermesh-enable-mcs-api=true", "--max-connected-clusters=511")
	operatortest.Eventually(t, "the new value", func() bool {
		return string(e.Get(key).Value) == `{"id":1,"capabilities":{"maxConnectedClusters":511,"serviceExportsEnabled":true}}`
	})
}

// CC-7; CC-E9; number 15 of the contract's heartbeat-and-locks.md: the configuration says of EndpointSlices what is true.
func TestSlicesAreToldOnceTheyAreThere(t *testing.T) {
	t.Parallel()
	const slices = "cilium/synced/cluster1/cilium/state/endpointslices/v1"
	e := kvstoretest.Start(t, 1)
	has := func(want string) func() bool {
		return func() bool { kv := e.Get(key); return kv != nil && string(kv.Value) == want }
	}
	o := lead(t, e.Endpoints()[0])
	operatortest.Eventually(t, "they are not there", has(value))
	e.Put(slices, "2026-01-01T00:00:00Z", 0)
	operatortest.Eventually(t, "they are there", has(withSlicesToo))
	e.Delete(slices)
	operatortest.Eventually(t, "they are not there any more", has(value))
	e.Put(slices, "2026-01-01T00:00:00Z", 0)
	operatortest.Eventually(t, "they are there again", has(withSlicesToo))
	o.Stop()
	o = lead(t, e.Endpoints()[0], "--clustermesh-service-v2=only-endpointslice")
	operatortest.Eventually(t, "they are there alone", has(slicesAlone))
	o.Stop()
	lead(t, e.Endpoints()[0], "--cilium-release=1.19")
	operatortest.Eventually(t, "up to 1.19 there are none", has(value))
}

// CC-1; CC-E4.
func TestNotInAMesh(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		id   uint32
		want bool
	}{{"default", 0, false}, {"cluster1", 0, false}, {"default", 1, false}, {"cluster1", 1, true}} {
		if got := inMesh(cluster.Config{ClusterName: c.name, ClusterID: c.id}); got != c.want {
			t.Errorf("%s with %d: %t", c.name, c.id, got)
		}
	}
	e := kvstoretest.Start(t, 1)
	left := "cilium/cluster-config/default"
	e.Put(left, "somebody's", 0)
	o := lead(t, e.Endpoints()[0], "--cluster-name=default", "--cluster-id=0")
	operatortest.Eventually(t, "another duty has written", func() bool { return e.Get(marker) != nil })
	resp, err := e.Client.Get(t.Context(), "cilium/cluster-config/", clientv3.WithPrefix())
	if err != nil || resp.Count != 1 || string(resp.Kvs[0].Value) != "somebody's" {
		t.Errorf("there are %v, %v", resp.Kvs, err)
	}
	o.Stop()
}

// CC-4; CC-E7: what is as it should be costs no write. At a restart it is
// put on the new lease, once.
func TestUnchanged(t *testing.T) {
	t.Parallel()
	e := kvstoretest.Start(t, 1)
	o := lead(t, e.Endpoints()[0])
	operatortest.Eventually(t, "the key", func() bool { return e.Get(key) != nil })
	first := e.Get(key)
	record := e.Follow(key, first.ModRevision+1)
	for i := range 3 { // news about other keys are none
		e.Put(fmt.Sprint(key, i), "", 0)
	}
	operatortest.Eventually(t, "they are seen", func() bool { return record.Puts() == 3 })
	o.LeaveTerm()
	o.EnterTerm()
	operatortest.Eventually(t, "it is on another lease", func() bool { return e.Get(key).Lease != first.Lease })
	o.Stop()
	if kv := e.Get(key); kv.Version != 2 || string(kv.Value) != value {
		t.Errorf("it was written %d times, and is %s", kv.Version, kv.Value)
	}
}

// Number 16 of the contract's heartbeat-and-locks.md; CC-5; CC-E8: what others do to the key is undone, and not at full speed
// where they insist.
func TestRestored(t *testing.T) {
	t.Parallel()
	e := kvstoretest.Start(t, 1)
	lead(t, e.Endpoints()[0])
	operatortest.Eventually(t, "the key", func() bool { return e.Get(key) != nil })
	whole := func() bool { kv := e.Get(key); return kv != nil && string(kv.Value) == value && kv.Lease != 0 }
	began := time.Now()
	e.Delete(key)
	operatortest.Eventually(t, "it is back", whole)
	for i := range 50 {
		e.Put(key, fmt.Sprint("other ", i), 0)
	}
	operatortest.Eventually(t, "it is right again", whole)
	if n, most := e.Get(key).Version-50, 3+int64(time.Since(began)/time.Duration(minWriteInterval)); n > most {
		t.Errorf("it was written %d times against 50 in %s", n, time.Since(began))
	}
}

// CC-5; number 9.1 of the contract's tenants.md: a key that another writer changes after each write, and one whose value flips with a marker
// that comes and goes, is written slower and slower, which health says.
func TestContention(t *testing.T) {
	t.Parallel()
	const slices = "cilium/synced/cluster1/cilium/state/endpointslices/v1"
	for name, undo := range map[string]func(e *kvstoretest.Etcd, is string){
		"changed": func(e *kvstoretest.Etcd, _ string) { e.Put(key, "theirs", 0) },
		"marker": func(e *kvstoretest.Etcd, is string) {
			if is == value {
				e.Put(slices, "", 0)
			} else {
				e.Delete(slices)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := kvstoretest.Start(t, 1)
			o := leadWith(t, module(0), e.Endpoints()[0])
			operatortest.Eventually(t, "the key", func() bool { return e.Get(key) != nil })
			writes, last := 0, ""
			for end := time.Now().Add(4 * time.Second); time.Now().Before(end); time.Sleep(5 * time.Millisecond) { // the other writer looks each 5 ms
				is := string(e.Get(key).Value)
				if is == "theirs" || is == last {
					continue
				}
				writes, last = writes+1, is
				undo(e, is)
				if name == "changed" {
					last = ""
				}
			}
			if writes < 5 || writes > 8 {
				t.Errorf("the key was written %d times in 4 s, want the first five and then one after 1 s and one after 2 s more", writes)
			}
			operatortest.Eventually(t, "health names the key", func() bool { return strings.Contains(fmt.Sprint(o.Degraded("clusterconfig")), key) })
		})
	}
}

// Number 19 of the contract's heartbeat-and-locks.md: an etcd that is away at the start, and again later, hurts nothing for good.
func TestEtcdAway(t *testing.T) {
	t.Parallel()
	e := kvstoretest.Start(t, 1)
	door := e.Proxy(t, "etcd-0")
	door.Refuse(t)
	o := lead(t, e.ProxyEndpoints()[0])
	operatortest.Eventually(t, "it is known to be away", func() bool { return len(o.Degraded("kvstore")) > 0 })
	operatortest.Eventually(t, "the duty says that it waits", func() bool { return len(o.Degraded("clusterconfig")) > 0 })
	door.Heal(t)
	operatortest.Eventually(t, "the key", func() bool { return e.Get(key) != nil })
	door.Refuse(t)
	door.Cut(t)
	e.Put(key, "meanwhile", 0)
	door.Heal(t)
	operatortest.Eventually(t, "it is right again", func() bool { return string(e.Get(key).Value) == value })
	if n := o.Log().Count(`"level":"error"`); n != 0 {
		t.Errorf("%d errors are logged", n)
	}
}

// A lost lease ends the writing; a revoked one of etcd does not.
func TestLeases(t *testing.T) {
	t.Parallel()
	e := kvstoretest.Start(t, 1)
	o := lead(t, e.Endpoints()[0])
	operatortest.Eventually(t, "the key", func() bool { return e.Get(key) != nil })
	lease := e.Get(key).Lease
	if _, err := e.Client.Revoke(t.Context(), clientv3.LeaseID(lease)); err != nil {
		t.Fatal(err)
	}
	operatortest.Eventually(t, "it is on another lease", func() bool { kv := e.Get(key); return kv != nil && kv.Lease != lease })
	o.LoseLease()
	rev := e.Put(key, "the successor's", 0)
	o.LeaveTerm()
	if kv := e.Get(key); kv.ModRevision != rev {
		t.Errorf("it was written after the term, at %d: %s", kv.ModRevision, kv.Value)
	}
	o.EnterTerm()
	operatortest.Eventually(t, "it is right again", func() bool { return string(e.Get(key).Value) == value })
}
