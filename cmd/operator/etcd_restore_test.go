// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/skep-operator/skep/resources/kvstore/kvstoretest"
)

// etcd is restored from an older snapshot, as etcdutl does it, while an operator runs: revisions go back, what was written
// since is gone, and what was deleted since is there again. The operator writes all that is missing, on leases that live, and
// deletes what is not wanted; no live key is deleted on the way (KV-L5).
func TestEtcdIsRestoredFromASnapshot(t *testing.T) {
	d := newEtcdDuties(newWorld(t), kvstoretest.Start(t, 1), "kvstore")
	e, want := d.etcd, d.populate()
	o, _ := d.run("restored", nil, d.withDuties()...)
	o.leads()
	o.until("the store has converged", func() bool { return d.converged(want) })
	taken := e.Revision()
	file := snapshotOf(t, e)

	for i := range 20 {
		later, earlier := fmt.Sprint("later-", i), fmt.Sprint("service-", i)
		address, node := fmt.Sprint("10.1.1.", i+1), fmt.Sprint("later-", i)
		d.service(later, address)
		want.services[d.serviceKey(later)] = `"` + address + `"`
		d.addNode(node, fmt.Sprintf("10.3.%d.0/24", i))
		want.nodes[nodeKeys+node] = `"` + node + `"`
		d.identity(100+i, true)
		want.identities[identityKey(100+i)] = labelsOf(100 + i)
		switch i % 3 {
		case 0:
			d.removeService(earlier)
			delete(want.services, d.serviceKey(earlier))
		case 1:
			d.move(earlier, fmt.Sprint("10.1.2.", i+1))
			want.services[d.serviceKey(earlier)] = fmt.Sprintf(`"10.1.2.%d"`, i+1)
		}
	}
	o.until("the changes are in the store", func() bool { return d.converged(want) })
	last := e.Revision()

	e.Restore(t, file)
	if now := e.Revision(); now >= last {
		t.Logf("the operator has made %d changes already", now-taken)
	}
	record := e.Follow("cilium/state/", taken+1)
	for n := range 120 { // agents write what they use
		if want.identities[identityKey(n)] != "" {
			if err := allocate(t.Context(), d, n); err != nil {
				t.Fatal(err)
			}
		}
	}
	o.until("the operator notices", func() bool { return o.log.Count("etcd data was restored or replaced") > 0 })
	o.until("the store has converged", func() bool { return d.converged(want) })
	o.until("health is well", func() bool { s, ok := o.status(); return ok && len(s.Degraded) == 0 })
	for _, event := range record.Events() {
		key := string(event.Kv.Key)
		live := want.services[key] != "" || want.nodes[key] != "" || want.identities[key] != ""
		if event.Type == clientv3.EventTypeDelete && live {
			t.Errorf("%s is live, and was deleted at revision %d", key, event.Kv.ModRevision)
		}
	}
	for key := range want.services {
		lease := clientv3.LeaseID(e.Get(key).Lease)
		if resp, err := e.Client.TimeToLive(t.Context(), lease); err != nil || resp.TTL <= 0 {
			t.Errorf("%s is on lease %x, which is over (%v)", key, lease, err)
		}
	}
	if code := o.stop(); code != 0 {
		t.Errorf("exit code %d", code)
	}
}

// snapshotOf saves a snapshot of an etcd, and returns the file.
func snapshotOf(t *testing.T, e *kvstoretest.Etcd) string {
	t.Helper()
	data, err := e.Client.Snapshot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer data.Close()
	path := filepath.Join(t.TempDir(), "snapshot.db")
	file, err := os.Create(path)
	if err == nil {
		_, err = io.Copy(file, data)
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := file.Close(); err != nil {
		t.Fatal(err)
	}
	return path
}
