// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package kvstore

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/skep-operator/skep/resources/clustertest"
	"github.com/skep-operator/skep/runtime/waittest"
)

// deaf swallows all that etcd answers.
var deaf = clustertest.Link{Down: clustertest.Direction{BlackHole: true}}

func attempts(d time.Duration) setup {
	return func(p *connParams) { p.Timing.attempt = d }
}

// KV-O7: a member that hangs delays no request for longer than one attempt.
func TestAMemberThatStandsStill(t *testing.T) {
	t.Parallel()
	e := clustertest.StartEtcd(t, 3)
	r := newHarness(t, fileOption(t, map[string]any{"endpoints": e.Endpoints()}), attempts(300*time.Millisecond)).ready(t)
	eventually(t, "three members, of which one leads", func() bool {
		s := r.Status()
		return s.Connected() == 3 && strings.Contains(s.String(), "(Leader)")
	})
	for i := range 6 { // every member has had a request
		check(t, r.Write(withCause(t), PutLeased(fmt.Sprint("before/", i), nil)))
	}
	still := "etcd-0"
	if still == theLeader(t, e) {
		still = "etcd-1"
	}
	e.Pause(t, still)
	defer e.Resume(t, still)
	ctx, cancel := context.WithTimeout(withCause(t), waittest.Limit)
	defer cancel()
	for i := range 6 {
		key := fmt.Sprint("during/", i)
		check(t, r.Write(ctx, PutLeased(key, []byte("v"))))
		if is := must(r.Get(ctx, key))(t); is == nil || string(is.Value) != "v" {
			t.Errorf("%s is %v", key, is)
		}
	}
	if n := len(must(r.List(ctx, "during/"))(t).Entries); n != 6 {
		t.Errorf("%d keys are listed", n)
	}
}

// KV-O7: a write that was done and had no answer is not done again if it has a guard,
// and is not said to have found the guard broken. Without one it is repeated.
func TestWritesWithoutAnAnswer(t *testing.T) {
	t.Parallel()
	e := clustertest.StartEtcd(t, 1)
	etcd, door := directClient(t, e), e.Proxy(t, "etcd-0")
	r := newHarness(t, to(e.ProxyEndpoints()[0]), attempts(200*time.Millisecond)).ready(t)
	check(t, r.Write(withCause(t), PutLeased("k", []byte("1")))) // has the lease made

	door.SetLink(t, deaf)
	key := ""
	eventually(t, "a guarded write is done, and has no answer", func() bool { // a slow process may send none in its time
		key += "guarded"
		ok, err := r.WriteIf(withCause(t), []Guard{Absent(key)}, PutLeased(key, nil))
		if ok || !errors.Is(err, errUnanswered) {
			t.Fatalf("a guarded write without an answer: %v, %v", ok, err)
		}
		return read(t, etcd, key) != nil
	})

	done := make(chan error, 1)
	go func() { done <- r.Write(withCause(t), PutLeased("k", []byte("2"))) }()
	eventually(t, "a second attempt", func() bool {
		kv := must(etcd.Get(t.Context(), "k"))(t).Kvs[0]
		return kv.Version >= 3 && string(kv.Value) == "2"
	})
	door.Heal(t)
	check(t, <-done)
	if kv := must(etcd.Get(t.Context(), key))(t).Kvs[0]; kv.Version != 1 {
		t.Errorf("the guarded write was done %d times", kv.Version)
	}
}

// KV-S5: a store asks what became of a delete that had no answer.
func TestADeleteWithoutAnAnswer(t *testing.T) {
	t.Parallel()
	e := clustertest.StartEtcd(t, 1)
	etcd, door := directClient(t, e), e.Proxy(t, "etcd-0")
	r := newHarness(t, to(e.ProxyEndpoints()[0]), attempts(200*time.Millisecond)).ready(t)
	s := newServices(t, r)
	s.Upsert("k", nil)
	run(t, s.Run)
	eventually(t, "the key", func() bool { return read(t, etcd, servicesOfC1+"k") != nil && queueOf(r) == 0 })
	door.SetLink(t, deaf)
	s.Delete("k")
	eventually(t, "it was done", func() bool { return read(t, etcd, servicesOfC1+"k") == nil })
	eventually(t, "the delete is unanswered", func() bool { return errorsOf(r) > 0 })
	door.Heal(t)
	eventually(t, "the store knows", func() bool { return queueOf(r) == 0 })
	if n := errorsOf(r); n != 1 {
		t.Errorf("%v attempts failed, want the one", n)
	}
	s.Upsert("k", nil)
	eventually(t, "the key is back", func() bool { return read(t, etcd, servicesOfC1+"k") != nil })
}

// KV-S5: a put that timed out in a store and is applied after the name was deleted
// leaves no key behind.
func TestAPutThatComesLate(t *testing.T) {
	t.Parallel()
	e := clustertest.StartEtcd(t, 1)
	etcd, door := directClient(t, e), e.Proxy(t, "etcd-0")
	r := newHarness(t, to(e.ProxyEndpoints()[0]), attempts(200*time.Millisecond)).ready(t)
	s := newServices(t, r)
	s.Upsert("probe", []byte("{}"))
	s.Synced()
	run(t, s.Run)
	late, probe := servicesOfC1+"late", servicesOfC1+"probe"
	eventually(t, "the first key, and the marker", func() bool { return read(t, etcd, probe) != nil && read(t, etcd, syncedOfC1) != nil })
	lease := read(t, etcd, probe).Lease

	door.BlackHole(t)
	s.Upsert("late", []byte("{}"))
	eventually(t, "a put is tried", func() bool {
		s.syncer.mu.Lock()
		defer s.syncer.mu.Unlock()
		_, tried := s.syncer.state.written["late"]
		return tried
	})
	s.Delete("late")
	door.Heal(t)
	eventually(t, "the store is done with it", func() bool { return queueOf(r) == 0 })
	must(etcd.Put(t.Context(), late, "{}", clientv3.WithLease(clientv3.LeaseID(lease))))(t)
	eventually(t, "the late put is undone", func() bool { return read(t, etcd, late) == nil })
}
