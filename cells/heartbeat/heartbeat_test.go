// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package heartbeat

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/skep-operator/skep/resources/kvstore"
	"github.com/skep-operator/skep/resources/kvstore/kvstoretest"
	"github.com/skep-operator/skep/resources/operatortest"
	"github.com/skep-operator/skep/resources/reconcile"
	"github.com/skep-operator/skep/runtime/cell"
	"github.com/skep-operator/skep/runtime/health"
	"github.com/skep-operator/skep/runtime/metrics"
)

const key = "cilium/.heartbeat"

// every makes heartbeats as frequent as a test wants them.
func every(d time.Duration) cell.Cell {
	return cell.Decorate(func(c Config) Config { c.KVStoreHeartbeatInterval = d; return c })
}

func lead(t *testing.T, endpoint string, more ...cell.Cell) *operatortest.Operator {
	t.Helper()
	return operatortest.Start(t, cell.Set(append(more, kvstore.Cell, Cell)...), "", kvstoretest.Args(endpoint)...)
}

// Number 18 of the contract's heartbeat-and-locks.md; HB-1 and HB-2; HB-E1.
func TestFirstHeartbeat(t *testing.T) {
	t.Parallel()
	e := kvstoretest.Start(t, 1)
	began := time.Now().Truncate(time.Second)
	o := lead(t, e.Endpoints()[0])
	operatortest.Eventually(t, "a heartbeat", func() bool { return e.Get(key) != nil })
	kv := e.Get(key)
	if !regexp.MustCompile(`^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$`).Match(kv.Value) {
		t.Errorf("the value is %q", kv.Value)
	}
	if at, err := time.Parse(time.RFC3339, string(kv.Value)); err != nil || at.Before(began) || at.After(time.Now()) {
		t.Errorf("the value is %s, %v", at, err)
	}
	resp, err := e.Client.TimeToLive(t.Context(), clientv3.LeaseID(kv.Lease))
	if err != nil || kv.Lease == 0 || resp.GrantedTTL != 900 {
		t.Errorf("the lease is %x of %d s, %v", kv.Lease, resp.GrantedTTL, err)
	}
	operatortest.Eventually(t, "the metric tells when", func() bool {
		return o.MetricSum("kvstore_heartbeat_last_success_timestamp_seconds") >= float64(began.Unix())
	})
	writes := 0
	for _, w := range o.Book.Writes(0) {
		if w.Module == "heartbeat" && w.Name == ".heartbeat" && w.Result == "ok" && w.Cause.Rule == "heartbeat beat" {
			writes++
		}
	}
	if writes != 1 || kv.Version != 1 || o.MetricSum("kvstore_heartbeat_failures_total") != 0 {
		t.Errorf("%d writes are in the book, %d in etcd", writes, kv.Version)
	}
}

// HB-3; HB-E2: an equal text is written again.
func TestEveryHeartbeatIsAnEvent(t *testing.T) {
	t.Parallel()
	e := kvstoretest.Start(t, 1)
	record := e.Follow(key, 1)
	lead(t, e.Endpoints()[0], every(20*time.Millisecond))
	operatortest.Eventually(t, "two heartbeats of one second", func() bool {
		events := record.Events()
		for i := 1; i < len(events); i++ {
			if string(events[i].Kv.Value) == string(events[i-1].Kv.Value) && events[i].IsModify() {
				return true
			}
		}
		return false
	})
}

// failing is a key-value store whose writes end as a test wants.
type failing struct {
	kvstore.Client // nil: nothing else is asked for
	write          func(context.Context) error
}

func (f *failing) AwaitConnected(context.Context) error { return nil }

func (f *failing) Write(ctx context.Context, _ ...kvstore.Write) error { return f.write(ctx) }

// HB-2 and HB-4: when the next attempt is due.
func TestPauses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		var at []time.Duration
		store := &failing{write: func(ctx context.Context) error {
			at = append(at, time.Since(began))
			switch n := len(at); {
			case n == 1:
				time.Sleep(3 * time.Second) // a slow one
			case n == 2:
				<-ctx.Done() // one that gets no answer
				return ctx.Err()
			case n <= 8:
				return errors.New("no")
			}
			return nil
		}}
		tree := health.NewTree()
		scope := reconcile.Deps{Module: cell.ModuleInfo{ID: "heartbeat", Term: "leader"}, Log: slog.New(slog.NewTextHandler(io.Discard, nil)), Health: tree.Reporter("heartbeat")}
		queue := newController(Config{KVStoreHeartbeatInterval: time.Minute}, store, scope, newMetrics(metrics.Factory{}))
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); _ = queue.Run(ctx) }()
		time.Sleep(time.Minute + 42*time.Second)
		if len(tree.Degraded()) != 1 {
			t.Errorf("while heartbeats fail: %v", tree.Degraded())
		}
		time.Sleep(2 * time.Minute)
		if len(tree.Degraded()) != 0 {
			t.Errorf("later: %v", tree.Degraded())
		}
		cancel()
		<-done
		s := time.Second
		want := []time.Duration{0, 63 * s, 89 * s, 91 * s, 94 * s, 97 * s, 100 * s, 103 * s, 106 * s, 166 * s}
		if !slices.Equal(at, want) {
			t.Errorf("attempts at %v, want %v", at, want)
		}
	})
}

// HB-4; HB-E3. HB-5: one warning, and health says so.
func TestOutage(t *testing.T) {
	t.Parallel()
	e := kvstoretest.Start(t, 1)
	door := e.Proxy(t, "etcd-0")
	record := e.Follow(key, 1)
	o := lead(t, e.ProxyEndpoints()[0], every(100*time.Millisecond))
	operatortest.Eventually(t, "heartbeats", func() bool { return record.Puts() > 2 })
	door.Refuse(t)
	door.Cut(t)
	operatortest.Eventually(t, "a failure", func() bool { return o.MetricSum("kvstore_heartbeat_failures_total") >= 1 })
	operatortest.Eventually(t, "health says so", func() bool { return len(o.Degraded("heartbeat")) > 0 })
	before := record.Puts()
	door.Heal(t)
	operatortest.Eventually(t, "heartbeats again", func() bool { return record.Puts() > before+2 })
	operatortest.Eventually(t, "health says so", func() bool { return len(o.Degraded("heartbeat")) == 0 })
	if n := o.Log().Count(`"level":"warning"`, "heartbeat beat"); n != 1 {
		t.Errorf("%d warnings for one outage", n)
	}
}

// Number 19 of the contract's heartbeat-and-locks.md; HB-1: an etcd that is away at the start is waited for, and no failure of
// the heartbeat.
func TestEtcdAwayAtTheStart(t *testing.T) {
	t.Parallel()
	e := kvstoretest.Start(t, 1)
	door := e.Proxy(t, "etcd-0")
	door.Refuse(t)
	o := lead(t, e.ProxyEndpoints()[0])
	operatortest.Eventually(t, "it is known to be away", func() bool { return len(o.Degraded("kvstore")) > 0 })
	operatortest.Eventually(t, "the heartbeat says what it waits for", func() bool { return waits(o) })
	door.Heal(t)
	operatortest.Eventually(t, "a heartbeat", func() bool { return e.Get(key) != nil })
	if waits(o) {
		t.Error("it still says that it waits")
	}
	if n := o.MetricSum("kvstore_heartbeat_failures_total"); n != 0 {
		t.Errorf("%v failures were counted", n)
	}
}

func waits(o *operatortest.Operator) bool {
	return strings.Contains(o.Degraded("heartbeat"), "heartbeat.job-beat.waits-for-etcd: ")
}

// HB-4: without a quorum heartbeats fail, and come back with it.
func TestQuorumLost(t *testing.T) {
	t.Parallel()
	e := kvstoretest.Start(t, 3)
	record := e.Follow(key, 1)
	o := lead(t, e.Endpoints()[0], every(100*time.Millisecond))
	operatortest.Eventually(t, "heartbeats", func() bool { return record.Puts() > 2 })
	members := e.Members(t)
	for _, m := range members[1:] {
		e.Kill(t, m.Name)
	}
	operatortest.Eventually(t, "a failure", func() bool { return o.MetricSum("kvstore_heartbeat_failures_total") > 0 })
	for _, m := range members[1:] {
		e.Start(t, m.Name)
	}
	rev := e.Revision()
	operatortest.Eventually(t, "a heartbeat", func() bool { kv := e.Get(key); return kv != nil && kv.ModRevision > rev })
}

// HB-6: a heartbeat whose lease is revoked is back at once, on another lease.
func TestLeaseRevoked(t *testing.T) {
	t.Parallel()
	e := kvstoretest.Start(t, 1)
	lead(t, e.Endpoints()[0])
	operatortest.Eventually(t, "a heartbeat", func() bool { return e.Get(key) != nil })
	lost := e.Get(key).Lease
	if _, err := e.Client.Revoke(t.Context(), clientv3.LeaseID(lost)); err != nil {
		t.Fatal(err)
	}
	operatortest.Eventually(t, "it is back", func() bool { kv := e.Get(key); return kv != nil && kv.Lease != 0 && kv.Lease != lost })
}

// HB-7: the next leader has the heartbeat on its own lease; one that lost the
// lease writes no more, and one that stops leaves the key.
func TestHandOver(t *testing.T) {
	t.Parallel()
	e := kvstoretest.Start(t, 1)
	record := e.Follow(key, 1)
	first := lead(t, e.Endpoints()[0], every(20*time.Millisecond))
	operatortest.Eventually(t, "a heartbeat of the first", func() bool { return record.Puts() > 0 })
	owner := e.Get(key).Lease
	first.LoseLease()
	after := e.Revision()
	second := lead(t, e.Endpoints()[0], every(20*time.Millisecond))
	by := func(first bool) (n int) {
		for _, event := range record.Events() {
			if event.Kv.ModRevision > after && (event.Kv.Lease == owner) == first {
				n++
			}
		}
		return n
	}
	operatortest.Eventually(t, "heartbeats of the second", func() bool { return by(false) > 10 })
	first.LeaveTerm()
	if n := by(true); n > 1 { // one may have been on its way
		t.Errorf("the first wrote %d times after it lost its lease", n)
	}
	second.LeaveTerm()
	puts := record.Puts()
	first.EnterTerm() // leads again
	operatortest.Eventually(t, "a heartbeat of the first", func() bool { return record.Puts() > puts+1 })
	first.Stop()
	if e.Get(key) == nil {
		t.Error("the heartbeat went with its writer")
	}
}

func TestConfig(t *testing.T) {
	for d, ok := range map[time.Duration]bool{0: false, time.Second: true, time.Minute: true, time.Minute + 1: false} {
		if err := cell.ValidateConfig(Config{KVStoreHeartbeatInterval: d}); (err == nil) != ok {
			t.Errorf("%s: %v", d, err)
		}
	}
}
