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

// Rule O7: a member that stands still holds up no request for longer than an attempt.
func TestAMemberThatStandsStill(t *testing.T) {
	t.Parallel()
	e := clustertest.StartEtcd(t, 3)
	r := newRig(t, fileOption(t, map[string]any{"endpoints": e.Endpoints()}), attempts(300*time.Millisecond)).ready(t)
	until(t, "three members, of which one leads", func() bool {
		s := r.Status()
		return s.Connected() == 3 && strings.Contains(s.String(), "(Leader)")
	})
	for i := range 6 { // every member has had a request
		check(t, r.Write(caused(t), PutLeased(fmt.Sprint("before/", i), nil)))
	}
	still := "etcd-0"
	if still == theLeader(t, e, r) {
		still = "etcd-1"
	}
	e.Pause(t, still)
	defer e.Resume(t, still)
	ctx, cancel := context.WithTimeout(caused(t), waittest.Limit)
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

// Rule O7: a write that was done and had no answer is not done again if it has a guard,
// and is not said to have found the guard broken. Without one it is repeated.
func TestWritesWithoutAnAnswer(t *testing.T) {
	t.Parallel()
	e := clustertest.StartEtcd(t, 1)
	etcd, door := direct(t, e), e.Proxy(t, "etcd-0")
	r := newRig(t, to(e.ProxyEndpoints()[0]), attempts(200*time.Millisecond)).ready(t)
	check(t, r.Write(caused(t), PutLeased("k", []byte("1")))) // has the lease made

	door.SetLink(t, deaf)
	ok, err := r.WriteIf(caused(t), []Guard{Absent("guarded")}, PutLeased("guarded", nil))
	if ok || !errors.Is(err, errUnanswered) {
		t.Errorf("a guarded write without an answer: %v, %v", ok, err)
	}
	until(t, "it was done", func() bool { return read(t, etcd, "guarded") != nil })

	done := make(chan error, 1)
	go func() { done <- r.Write(caused(t), PutLeased("k", []byte("2"))) }()
	until(t, "a second attempt", func() bool {
		kv := must(etcd.Get(t.Context(), "k"))(t).Kvs[0]
		return kv.Version >= 3 && string(kv.Value) == "2"
	})
	door.Heal(t)
	check(t, <-done)
	if kv := must(etcd.Get(t.Context(), "guarded"))(t).Kvs[0]; kv.Version != 1 {
		t.Errorf("the guarded write was done %d times", kv.Version)
	}
}

// Rule S5: a store asks what became of a delete that had no answer.
func TestADeleteWithoutAnAnswer(t *testing.T) {
	t.Parallel()
	e := clustertest.StartEtcd(t, 1)
	etcd, door := direct(t, e), e.Proxy(t, "etcd-0")
	r := newRig(t, to(e.ProxyEndpoints()[0]), attempts(200*time.Millisecond)).ready(t)
	s := newServices(t, r)
	s.Upsert("k", nil)
	run(t, s.Run)
	until(t, "the key", func() bool { return read(t, etcd, servicesOfC1+"k") != nil && queueOf(r) == 0 })
	door.SetLink(t, deaf)
	s.Delete("k")
	until(t, "it was done", func() bool { return read(t, etcd, servicesOfC1+"k") == nil })
	until(t, "nobody knows", func() bool { return errorsOf(r) > 0 })
	door.Heal(t)
	until(t, "the store knows", func() bool { return queueOf(r) == 0 })
	if n := errorsOf(r); n != 1 {
		t.Errorf("%v attempts failed, want the one", n)
	}
	s.Upsert("k", nil)
	until(t, "the key is back", func() bool { return read(t, etcd, servicesOfC1+"k") != nil })
}

// Rule S5: a put that a store has given up for lost, and that is done when nobody wants
// the name any more, does not leave its key behind. Another's key of that name does.
func TestAPutThatComesLate(t *testing.T) {
	t.Parallel()
	e := clustertest.StartEtcd(t, 1)
	etcd, door := direct(t, e), e.Proxy(t, "etcd-0")
	r := newRig(t, to(e.ProxyEndpoints()[0]), attempts(200*time.Millisecond)).ready(t)
	s := must(NewSharedStore(r.client, r.scope, NodesPrefix, JSON[node], nil))(t)
	s.UpdateLocal("c1/probe", []byte("{}"))
	run(t, s.Run)
	until(t, "the first key", func() bool { _, ok := s.Get("c1/probe"); return ok })
	probe := Folder(NodesPrefix) + "c1/probe"
	late, lease := Folder(NodesPrefix)+"c1/late", read(t, etcd, probe).Lease

	door.BlackHole(t)
	s.UpdateLocal("c1/late", []byte("{}"))
	until(t, "a put without an answer", func() bool {
		s.mirror.mu.Lock()
		defer s.mirror.mu.Unlock()
		_, doubtful := s.mirror.table.doubtful["c1/late"]
		return doubtful
	})
	s.DeleteLocal("c1/late")
	door.Heal(t)
	until(t, "the store is done with it", func() bool {
		s.mirror.mu.Lock()
		defer s.mirror.mu.Unlock()
		return len(s.mirror.open) == 0
	})
	must(etcd.Put(t.Context(), late, "{}", clientv3.WithLease(clientv3.LeaseID(lease))))(t)
	until(t, "the late put is undone", func() bool { return read(t, etcd, late) == nil })

	must(etcd.Put(t.Context(), late, "{}"))(t)
	until(t, "another's key is seen", func() bool { _, ok := s.Get("c1/late"); return ok })
	must(etcd.Delete(t.Context(), probe))(t)
	until(t, "the store has looked at what came after", func() bool { return read(t, etcd, probe) != nil })
	if read(t, etcd, late) == nil {
		t.Error("another's key was deleted")
	}
}
