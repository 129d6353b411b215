// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package kvstore

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"github.com/skep-operator/skep/resources/clustertest"
	"github.com/skep-operator/skep/resources/k8s"
	"github.com/skep-operator/skep/resources/reconcile"
	"github.com/skep-operator/skep/runtime/cell"
	"github.com/skep-operator/skep/runtime/health"
)

// KV-R1 to KV-R3: a connection to another cluster reads and never writes, and its watches end when the data are replaced,
// without deletions.
func TestRemote(t *testing.T) {
	first, second := clustertest.StartEtcd(t, 1), clustertest.StartEtcd(t, 1)
	proxy := newSwitchProxy(t, first.Endpoints()[0])
	for _, e := range []*clustertest.Etcd{first, second} {
		must(directClient(t, e).Put(t.Context(), HeartbeatKey, "now"))(t)
	}
	must(directClient(t, first).Put(t.Context(), "dir/a", "1"))(t)
	file := filepath.Join(t.TempDir(), "etcd.config")
	deps := reconcile.Deps{Module: cell.ModuleInfo{ID: "test"}, Log: slog.New(slog.DiscardHandler), Health: health.NewTree().Reporter("test")}
	r := must(NewRemote(file, deps, nil))(t)
	run(t, r.Run)
	check(t, os.WriteFile(file, []byte("endpoints: ["+proxy.address()+"]"), 0o600)) // KV-R1: it may come later

	events := make(chan Event, 10)
	run(t, func(ctx context.Context) error {
		defer close(events)
		for e := range r.Watch(ctx, "dir/") {
			events <- e
		}
		return nil
	})
	if e := <-events; e.Kind != Upsert || e.Key != "dir/a" {
		t.Fatalf("%+v", e)
	}
	if e := <-events; e.Kind != Synced {
		t.Fatalf("%+v", e)
	}
	if err := r.client.Write(withCause(t), Put("dir/b", nil)); !errors.Is(err, k8s.ErrReadOnly) { // KV-R2
		t.Errorf("a write: %v", err)
	}
	eventually(t, "it is healthy", func() bool { return r.Status().Err == nil && r.Status().Connected() == 1 })
	proxy.lead(t, second.Endpoints()[0])
	for e := range events { // KV-R3: until the watch ends
		t.Errorf("of the new data: %+v", e)
	}
	if n := len(must(directClient(t, first).Get(t.Context(), initLockPrefix))(t).Kvs); n > 0 {
		t.Errorf("%d locks are in etcd", n)
	}
}
