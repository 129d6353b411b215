// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package kvstore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/skep-operator/skep/resources/clustertest"
	"github.com/skep-operator/skep/resources/k8s"
	"github.com/skep-operator/skep/resources/leading"
	"github.com/skep-operator/skep/runtime/waittest"
)

var _ Fence = (*leading.Fence)(nil)

// clock is turned by hand.
type clock struct {
	mu   sync.Mutex
	mono time.Duration
	wall time.Time
}

func (c *clock) k8s() leading.Clock {
	return leading.Clock{
		Monotonic: func() time.Duration { c.mu.Lock(); defer c.mu.Unlock(); return c.mono },
		Wall:      func() time.Time { c.mu.Lock(); defer c.mu.Unlock(); return c.wall },
	}
}

// KV-F1: once the fence is shut, by either hand of the clock or because the
// term ended, no write starts; all that were running have ended.
func TestNoWriteAfterTheFence(t *testing.T) {
	t.Parallel()
	e := clustertest.StartEtcd(t, 1)
	etcd := directClient(t, e)
	for what, shut := range map[string]func(*clock, *leading.Fence){
		"the monotonic clock": func(c *clock, _ *leading.Fence) { c.mono += time.Hour },
		"the wall clock":      func(c *clock, _ *leading.Fence) { c.wall = c.wall.Add(time.Hour) },
		"the end of the term": func(_ *clock, f *leading.Fence) { f.Close() },
	} {
		c := &clock{wall: time.Now()}
		fence := leading.NewFence(c.k8s(), c.k8s().Now(), 30*time.Minute)
		r := newHarness(t, to(e.Endpoints()[0]), func(p *connParams) { p.Fence = fence }).ready(t)
		ctx := withCause(t)
		check(t, r.Write(ctx, PutLeased("k", []byte(what))))
		s := newServices(t, r)
		s.Upsert(what, nil)
		stop := run(t, s.Run)
		eventually(t, "a key of the store", func() bool { return read(t, etcd, servicesOfC1+what) != nil })
		eventually(t, "the first check, which writes, is over", func() bool { return r.Status().Quorum })

		if what == "the end of the term" {
			shut(c, fence)
		} else {
			c.mu.Lock()
			shut(c, fence)
			c.mu.Unlock()
		}
		before := must(etcd.Get(t.Context(), "k"))(t).Header.Revision
		writes := map[string]func() error{
			"put":         func() error { return r.Write(ctx, Put("k", nil)) },
			"leased put":  func() error { return r.Write(ctx, PutLeased("k", nil)) },
			"delete":      func() error { return r.Write(ctx, Remove("k")) },
			"transaction": func() error { _, err := r.WriteIf(ctx, []Guard{Absent("no")}, Put("no", nil)); return err },
			"lease": func() error {
				_, err := r.conn.grantLease(ctx, time.Minute, func() {})
				return err
			},
			"lock": func() error { return r.health.probe(ctx) },
		}
		for name, write := range writes {
			if err := write(); !errors.Is(err, leading.ErrFenced) {
				t.Errorf("%s after %s: %v", name, what, err)
			}
		}
		s.Upsert("late", nil)
		s.Synced()
		stop()
		fence.Close()
		if after := must(etcd.Get(t.Context(), "k"))(t).Header.Revision; after != before {
			t.Errorf("after %s etcd went from revision %d to %d", what, before, after)
		}
		check(t, r.stop())
	}
}

// KV-F2: what is under way ends with the fence, and so do its connections.
func TestFenceResetsConnections(t *testing.T) {
	t.Parallel()
	e := clustertest.StartEtcd(t, 1)
	door := e.Proxy(t, "etcd-0")
	r := newHarness(t, to(e.ProxyEndpoints()[0])).ready(t)
	door.BlackHole(t)
	failed := make(chan error, 1)
	go func() { failed <- r.Write(withCause(t), Put("k", nil)) }()
	waited := door.State(t).Connections
	r.fence.Close()
	if err := <-failed; !errors.Is(err, leading.ErrFenced) {
		t.Errorf("a write that was under way: %v", err)
	}
	if waited == 0 {
		t.Error("there was no connection to reset")
	}
	door.Heal(t)
	eventually(t, "all connections are gone", func() bool { return door.State(t).Connections == 0 })
}

// KV-F1 and KV-F2, of a single connection: it is reset when the fence closes,
// though nothing is going on, and when something is written after the deadline
// that was not noticed.
func TestFencedConnections(t *testing.T) {
	t.Parallel()
	listener := must(net.Listen("tcp", "127.0.0.1:0"))(t)
	defer listener.Close()
	c := &clock{wall: time.Now()}
	fence := leading.NewFence(c.k8s(), c.k8s().Now(), time.Hour)
	d := newDialer(fence, serviceAddresses{}, newDialErrors())
	pair := func() (near, far net.Conn) {
		near = must(d.dial(t.Context(), listener.Addr().String()))(t)
		return near, must(listener.Accept())(t)
	}
	written, far := pair()
	idle, farIdle := pair()
	must(written.Write([]byte("x")))(t)
	c.mu.Lock()
	c.wall = c.wall.Add(2 * time.Hour)
	c.mu.Unlock()
	if _, err := written.Write([]byte("late")); !errors.Is(err, leading.ErrFenced) {
		t.Errorf("a write after the deadline: %v", err)
	}
	if got, err := io.ReadAll(far); string(got) == "xlate" || err == nil && string(got) != "x" {
		t.Errorf("the other side read %q, %v", got, err)
	}
	fence.Close()
	if _, err := farIdle.Read(make([]byte, 1)); err == nil {
		t.Error("an idle connection outlives the fence")
	}
	if _, err := idle.Write([]byte("x")); err == nil {
		t.Error("an idle connection takes writes after the fence")
	}
	if conn, err := d.dial(t.Context(), listener.Addr().String()); !errors.Is(err, leading.ErrFenced) {
		t.Errorf("dialling after the fence: %v, %v", conn, err)
	}
	_, _ = far.Close(), farIdle.Close()
}

// KV-F3 and KV-F4: without a term there are only reads; a write says why.
func TestWritesThatMayNot(t *testing.T) {
	e := clustertest.StartEtcd(t, 1)
	etcd := directClient(t, e)
	must(etcd.Put(t.Context(), "k", "v"))(t)
	outside := newHarness(t, to(e.Endpoints()[0]), func(p *connParams) { p.Fence = nil })
	if err := outside.Write(withCause(t), Put("k", nil)); !errors.Is(err, k8s.ErrReadOnly) {
		t.Errorf("a write outside the term: %v", err)
	}
	if got := must(outside.Get(t.Context(), "k"))(t); string(got.Value) != "v" {
		t.Errorf("a read outside the term: %v", got)
	}

	lenient := newHarness(t, to(e.Endpoints()[0])).ready(t)
	check(t, lenient.Write(t.Context(), Put("k", []byte("w"))))
	if n := testutil.ToFloat64(lenient.metrics.Uncaused); n != 1 {
		t.Errorf("%v writes without a cause were counted", n)
	}
	t.Setenv(k8s.StrictCause, "1")
	strict := newHarness(t, to(e.Endpoints()[0])).ready(t) // its own writes have causes
	if err := strict.Write(t.Context(), Put("k", nil)); !errors.Is(err, k8s.ErrNoCause) {
		t.Errorf("a write without a cause: %v", err)
	}
	check(t, strict.Write(withCause(t), PutLeased("k", []byte("x"))))
	s := newServices(t, strict)
	s.Upsert("a", nil)
	s.Synced()
	run(t, s.Run)
	eventually(t, "the synced marker", func() bool { return read(t, etcd, syncedOfC1) != nil })
	revoke(t, etcd, read(t, etcd, "k").Lease)
	check(t, strict.Write(withCause(t), PutLeased("l", nil)))
	eventually(t, "restored keys", func() bool { return holds(t, etcd, "k", "x") && read(t, etcd, syncedOfC1) != nil })
	if n := testutil.ToFloat64(strict.metrics.Uncaused); n != 1 {
		t.Errorf("%v writes without a cause", n)
	}
}

// KV-F1: the interceptor takes every request that changes anything for a write,
// including methods of future releases of etcd.
func TestGateKnowsReads(t *testing.T) {
	t.Parallel()
	e := clustertest.StartEtcd(t, 1)
	outside := newHarness(t, to(e.Endpoints()[0]), func(p *connParams) { p.Fence = nil })
	etcd := must(outside.awaitClient(t.Context()))(t)
	ctx, cancel := context.WithTimeout(t.Context(), waittest.Limit)
	defer cancel()
	for name, call := range map[string]func() error{
		"put":        func() error { _, err := etcd.Put(ctx, "k", ""); return err },
		"compact":    func() error { _, err := etcd.Compact(ctx, 1); return err },
		"revoke":     func() error { _, err := etcd.Revoke(ctx, 1); return err },
		"member":     func() error { _, err := etcd.MemberAdd(ctx, []string{"http://127.0.0.1:1"}); return err },
		"user":       func() error { _, err := etcd.UserAdd(ctx, "u", "p"); return err },
		"defragment": func() error { _, err := etcd.Defragment(ctx, e.Endpoints()[0]); return err },
	} {
		if err := call(); !errors.Is(err, k8s.ErrReadOnly) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, call := range map[string]func() error{
		"range":   func() error { _, err := etcd.Get(ctx, "k"); return err },
		"leases":  func() error { _, err := etcd.Leases(ctx); return err },
		"ttl":     func() error { _, err := etcd.TimeToLive(ctx, clientv3.LeaseID(1)); return err },
		"members": func() error { _, err := etcd.MemberList(ctx); return err },
		"status":  func() error { _, err := etcd.Status(ctx, e.Endpoints()[0]); return err },
	} {
		if err := call(); err != nil {
			t.Errorf("%s: %v", name, fmt.Errorf("a read: %w", err))
		}
	}
}
