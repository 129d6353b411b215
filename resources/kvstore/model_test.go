// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package kvstore

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/skep-operator/skep/resources/clustertest"
	"github.com/skep-operator/skep/runtime/seedtest"
	"github.com/skep-operator/skep/runtime/waittest"
)

// world is an etcd, a store that is made, fed, hurt and replaced at random, and
// what should come of it.
type world struct {
	t    *testing.T
	rand *rand.Rand
	etcd *clientv3.Client
	ends *clustertest.Etcd
	door *clustertest.Proxy

	rig     *harness
	store   *SyncStore
	stop    func()
	desired map[string]string
	// unwanted are keys that were not desired at some time since the store that
	// lives was made, or whose end was another's deed: they may be deleted.
	mu       sync.Mutex
	unwanted map[string]bool
	wrong    []string
	followed int64    // the revision up to which deletes are checked
	acts     []string // since etcd was last correct
}

const (
	modelFolder = "cilium/state/services/v1/c1/"
	foreignKey  = "cilium/state/services/v1/c11/foreign"
	modelNames  = 12
)

// KV-S1 to KV-S6: whatever happens to etcd, the connection, leases, keys and the store itself:
// in the end what is desired is in etcd, byte for byte, on leases of ours, and
// nothing else; on the way nothing is deleted that was wanted all the time.
func TestSyncStoreModel(t *testing.T) {
	t.Parallel()
	seed, acts := seedtest.Seed(t), 400
	if seedtest.Soak() {
		acts = 20_000
	}
	e := clustertest.StartEtcd(t, 1)
	w := &world{
		t: t, rand: rand.New(rand.NewPCG(seed, 0)), etcd: directClient(t, e), ends: e, door: e.Proxy(t, "etcd-0"),
		desired: map[string]string{}, unwanted: map[string]bool{},
	}
	must(w.etcd.Put(t.Context(), foreignKey, "theirs"))(t)
	for i := range modelNames { // nothing is desired yet
		w.spare(fmt.Sprintf("ns/%d", i))
	}
	w.checkHistory()
	w.replace()
	for n := 0; n < acts; {
		for range 1 + w.rand.IntN(20) {
			w.act()
			n++
		}
		if w.rand.IntN(4) == 0 {
			w.awaitConverged()
		}
	}
	w.awaitConverged()
	w.stop()
}

// act does one random thing.
func (w *world) act() {
	name := fmt.Sprintf("ns/%d", w.rand.IntN(modelNames))
	n := w.rand.IntN(100)
	w.acts = append(w.acts, fmt.Sprintf("%d %s", n, name))
	switch {
	case n < 40:
		w.desired[name] = fmt.Sprint(w.rand.IntN(5))
		w.store.Upsert(name, []byte(w.desired[name]))
	case n < 60:
		w.spare(name)
		delete(w.desired, name)
		w.store.Delete(name)
	case n < 66:
		w.spare(name)
		w.try(func(ctx context.Context) error { _, err := w.etcd.Delete(ctx, modelFolder+name); return err })
	case n < 72:
		w.try(func(ctx context.Context) error { _, err := w.etcd.Put(ctx, modelFolder+name, "foreign"); return err })
	case n < 77:
		w.revoke()
	case n < 82:
		w.try(func(ctx context.Context) error {
			resp, err := w.etcd.Get(ctx, "x")
			if err == nil {
				_, err = w.etcd.Compact(ctx, resp.Header.Revision)
			}
			return err
		})
	case n < 87:
		w.door.Cut(w.t)
	case n < 90:
		w.door.BlackHole(w.t)
	case n < 92:
		w.door.Refuse(w.t)
		w.door.Cut(w.t)
	case n < 96:
		w.door.Heal(w.t)
	case n < 97:
		w.ends.Kill(w.t, "etcd-0")
		w.ends.Start(w.t, "etcd-0")
	case n < 99:
		time.Sleep(time.Duration(w.rand.IntN(100)) * time.Millisecond) // lets things happen
	default:
		w.replace()
	}
}

// try does something to etcd that may fail.
func (w *world) try(f func(context.Context) error) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	_ = f(ctx)
}

// spare lets a name be deleted.
func (w *world) spare(name string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.unwanted[modelFolder+name] = true
}

// revoke ends all leases; their keys go with them, and are to come back.
func (w *world) revoke() {
	for i := range modelNames {
		w.spare(fmt.Sprintf("ns/%d", i))
	}
	w.try(func(ctx context.Context) error {
		resp, err := w.etcd.Leases(ctx)
		if err != nil {
			return err
		}
		for _, l := range resp.Leases {
			if _, err := w.etcd.Revoke(ctx, l.ID); err != nil {
				return err
			}
		}
		return nil
	})
}

// replace puts a successor in the place of the store. It begins with what is
// desired now, as a new leader does.
func (w *world) replace() {
	if w.stop != nil {
		w.stop()
		check(w.t, w.rig.stop())
	}
	w.rig = newHarness(w.t, to(w.ends.ProxyEndpoints()[0]), quick, func(p *connParams) {
		p.Timing.operation, p.Timing.checkTimeout, p.Timing.maxReconnectDelay = time.Second, time.Second, 100*time.Millisecond
	}, option("etcd.keepaliveHeartbeat", "10s"), option("etcd.keepaliveTimeout", "1s"), option("etcd.limit", "3"))
	w.store = newServices(w.t, w.rig)
	for name, value := range w.desired {
		w.store.Upsert(name, []byte(value))
	}
	w.stop = run(w.t, w.store.Run)
	w.store.Synced()
}

// settle takes all faults back and waits for the end of it.
func (w *world) awaitConverged() {
	w.t.Helper()
	w.door.Heal(w.t)
	var differs string
	for deadline := time.Now().Add(waittest.Limit); ; time.Sleep(10 * time.Millisecond) { // between looks
		if differs = w.compare(); differs == "" {
			break
		}
		if time.Now().After(deadline) {
			buf := make([]byte, 1<<20)
			w.t.Fatalf("%s\nthe log is\n%s\n%s", differs, w.rig.log, buf[:runtime.Stack(buf, true)])
		}
	}
	w.catchUp()
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, wrong := range w.wrong {
		w.t.Errorf("%s; the acts were %v", wrong, w.acts)
	}
	w.wrong, w.acts = nil, nil
	clear(w.unwanted)
	for i := range modelNames {
		if name := fmt.Sprintf("ns/%d", i); w.desired[name] == "" {
			w.unwanted[modelFolder+name] = true
		}
	}
}

// catchUp waits until all deletes so far are checked: what may be deleted
// is about to be another question.
func (w *world) catchUp() {
	w.t.Helper()
	last := must(w.etcd.Put(w.t.Context(), foreignKey, "theirs"))(w.t).Header.Revision
	eventually(w.t, "all deletes are looked at", func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		return w.followed >= last
	})
}

// compare says where etcd is not what it should be.
func (w *world) compare() string {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	resp, err := w.etcd.Get(ctx, "cilium/s", clientv3.WithPrefix())
	if err != nil {
		return err.Error()
	}
	var differs []string
	left, marked := maps.Clone(w.desired), false
	for _, kv := range resp.Kvs {
		key := string(kv.Key)
		name, ours := strings.CutPrefix(key, modelFolder)
		switch {
		case key == foreignKey && string(kv.Value) == "theirs":
		case key == syncedOfC1:
			marked = w.rig.leases.has(LeaseID(kv.Lease))
		case !ours || left[name] != string(kv.Value):
			differs = append(differs, fmt.Sprintf("%s is %q, want %q", key, kv.Value, left[name]))
		case !w.rig.leases.has(LeaseID(kv.Lease)):
			differs = append(differs, fmt.Sprintf("%s is on lease %x", key, kv.Lease))
		}
		delete(left, name)
	}
	for name := range left {
		differs = append(differs, name+" is missing")
	}
	if !marked {
		differs = append(differs, "there is no synced marker on a lease of ours")
	}
	slices.Sort(differs)
	return strings.Join(differs, "; ")
}

// follow looks at all that happens for deletes that should not be.
func (w *world) checkHistory() {
	run(w.t, func(ctx context.Context) error {
		next := int64(1)
		for ctx.Err() == nil { // a watch ends with the member, and where etcd was compacted
			options := []clientv3.OpOption{clientv3.WithPrefix(), clientv3.WithRev(next)}
			for resp := range w.etcd.Watch(clientv3.WithRequireLeader(ctx), "cilium/s", options...) {
				next = max(next, resp.CompactRevision)
				for _, e := range resp.Events {
					next = e.Kv.ModRevision + 1
					w.checkEvent(e)
				}
			}
		}
		return nil
	})
}

func (w *world) checkEvent(e *clientv3.Event) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.followed = e.Kv.ModRevision
	if key := string(e.Kv.Key); e.Type == clientv3.EventTypeDelete && key != syncedOfC1 && !w.unwanted[key] {
		w.wrong = append(w.wrong, fmt.Sprintf("%s was deleted at %d", key, e.Kv.ModRevision))
	}
}
