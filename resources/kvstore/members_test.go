// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package kvstore

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"

	"github.com/skep-operator/skep/resources/clustertest"
	"github.com/skep-operator/skep/runtime/seedtest"
	"github.com/skep-operator/skep/runtime/waittest"
)

// How long the stores may take until all is in etcd when that serves again. An etcd that
// takes longer than servesWithin for a write and a read does not serve.
const (
	convergesWithin = 10 * time.Second
	servesWithin    = time.Second
)

// Members of three are killed, paused and brought back at random while keys come and
// go: as soon as all are back, all keys are what they should be, on leases that
// live, and on the way no key was deleted that was wanted all the time, and none was
// written without a lease. SKEP_SEED repeats a run.
func TestEtcdMembersComeAndGo(t *testing.T) {
	t.Parallel()
	rounds := 3
	if seedtest.Soak() {
		rounds = 60
	}
	w := newMembersWorld(t, seedtest.Seed(t), 4*time.Second)
	for range rounds {
		for range 10 + w.r.IntN(20) {
			w.trouble.Act(t)
			for range w.r.IntN(10) {
				w.churn()
			}
			time.Sleep(time.Duration(w.r.IntN(500)) * time.Millisecond) // a pace, not a wait
		}
		w.trouble.Heal(t)
		w.awaitConverged("the members are back")
	}
	w.finish()
}

// All of etcd is away for twice as long as leases live, in three ways, while keys
// come and go. In the long form an hour takes a minute: leases live for 15 s and not
// for 15 minutes, and etcd is away for 30 s and not for 30 minutes. Pauses between
// attempts, which are 5 s at most, are as ever.
func TestEtcdMembersAllAway(t *testing.T) {
	t.Parallel()
	seed, ttl := seedtest.Seed(t), 2*time.Second
	if seedtest.Soak() {
		ttl = 15 * time.Second
	}
	for name, outage := range map[string]func(*membersWorld) (end func()){
		"killed": func(w *membersWorld) func() { w.trouble.KillAll(w.t); return func() { w.trouble.Heal(w.t) } },
		"paused": func(w *membersWorld) func() { w.trouble.PauseAll(w.t); return func() { w.trouble.Heal(w.t) } },
		"out of reach": func(w *membersWorld) func() {
			for _, p := range w.proxies {
				p.BlackHole(w.t)
			}
			return func() {
				eventually(w.t, "etcd has ended all leases", func() bool {
					resp := must(w.etcd.Get(w.t.Context(), servicesOfC1, clientv3.WithPrefix(), clientv3.WithCountOnly()))(w.t)
					return resp.Count == 0
				})
				for _, p := range w.proxies {
					p.Heal(w.t)
				}
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newMembersWorld(t, seed, ttl, option("etcd.keepaliveHeartbeat", "10s"), option("etcd.keepaliveTimeout", "1s"))
			for range 100 {
				w.churn()
			}
			w.awaitConverged("the start")
			end := outage(w)
			for began := time.Now(); time.Since(began) < 2*ttl; {
				w.churn()
				time.Sleep(50 * time.Millisecond) // a pace, not a wait
			}
			end()
			w.awaitConverged(fmt.Sprintf("an outage of %s, with leases of %s", 2*ttl, ttl))
			w.finish()
			if name == "out of reach" && w.expired == 0 {
				t.Error("no lease has expired: the test shows nothing")
			}
		})
	}
}

// A name that is deleted while its key goes with a lease does not come back with the
// keys that are written again when that is found out.
func TestANameDeletedWhileItsLeaseIsLostStaysAway(t *testing.T) {
	t.Parallel()
	e := clustertest.StartEtcd(t, 1)
	etcd, r := directClient(t, e), newHarness(t, to(e.Endpoints()[0])).ready(t)
	s := newServices(t, r)
	run(t, s.Run)
	shows := func(name string) bool {
		s.syncer.mu.Lock()
		defer s.syncer.mu.Unlock()
		_, open := s.syncer.pending[name]
		_, shown := s.syncer.state.observed[name]
		return shown && !open
	}
	for round := range 5 {
		name := fmt.Sprint(round)
		key := servicesOfC1 + name
		s.Upsert(name, []byte(`{"Name":"n"}`))
		eventually(t, "it is shown", func() bool { return shows(name) })
		lease := read(t, etcd, key).Lease
		unlock := must(r.locks.lock(t.Context(), key))(t) // writes and deletes of it wait
		s.Delete(name)
		eventually(t, "the delete waits", func() bool {
			r.locks.mu.Lock()
			defer r.locks.mu.Unlock()
			return r.locks.locks[key].users == 2
		})
		must(etcd.Delete(t.Context(), key))(t) // as the end of the lease does
		eventually(t, "its deletion is observed", func() bool {
			s.syncer.mu.Lock()
			defer s.syncer.mu.Unlock()
			_, shown := s.syncer.state.observed[name]
			return !shown
		})
		unlock()
		eventually(t, "the delete has found nothing to do", func() bool {
			s.syncer.mu.Lock()
			defer s.syncer.mu.Unlock()
			_, open := s.syncer.pending[name]
			return !open
		})
		must(etcd.Revoke(t.Context(), clientv3.LeaseID(lease)))(t)
		check(t, r.health.leaseCheck(withCause(t)))
		eventually(t, "it is not tracked any more", func() bool {
			_, known := r.leases.get(key)
			return !known && read(t, etcd, key) == nil
		})
	}
}

// membersWorld is an etcd of three members, two stores over it, and what should be
// in etcd.
type membersWorld struct {
	t         *testing.T
	r         *rand.Rand
	endpoints *clustertest.Etcd
	proxies   []*clustertest.Proxy
	trouble   *clustertest.Trouble
	etcd      *clientv3.Client
	rig       *harness
	services  *SyncStore
	others    *SyncStore        // of service exports
	desired   map[string]string // by key
	expired   int               // keys that went with a lease that was over
	durations []time.Duration   // until all was well, each time

	mu sync.Mutex
	// spared are keys that were not desired at some time since all was well.
	spared          map[string]bool
	deletions       []deletion
	failures        []string
	checkedRevision int64 // the last revision that checkHistory has checked
	changeCount     int   // changes that it has seen
}

// doubt is a key that was deleted and is wanted: by us, or with its lease.
type deletion struct {
	key      string
	lease    int64
	revision int64
}

const (
	exportsOfC1  = "cilium/state/serviceexports/v1/c1/"
	exportsDone  = "cilium/synced/c1/cilium/state/serviceexports/v1"
	foreign      = "cilium/state/serviceexports/v1/c2/theirs"
	membersNames = 40
)

func newMembersWorld(t *testing.T, seed uint64, ttl time.Duration, setups ...setup) *membersWorld {
	t.Helper()
	e := clustertest.StartEtcd(t, 3)
	w := &membersWorld{
		t: t, r: rand.New(rand.NewPCG(seed, 4)), endpoints: e, trouble: clustertest.NewTrouble(t, e, seed),
		desired: map[string]string{}, spared: map[string]bool{},
	}
	for _, m := range e.Members(t) {
		w.proxies = append(w.proxies, e.Proxy(t, m.Name))
	}
	w.etcd = must(clientv3.New(clientv3.Config{
		Endpoints: e.Endpoints(), DialTimeout: 20 * time.Second, Logger: zap.NewNop(),
		DialOptions: []grpc.DialOption{grpc.WithConnectParams(grpc.ConnectParams{Backoff: backoff.Config{BaseDelay: 50 * time.Millisecond, Multiplier: 1.5, MaxDelay: time.Second}})},
	}))(t)
	t.Cleanup(func() { _ = w.etcd.Close() })
	for key := range w.keys() { // nothing is desired yet
		w.spared[key] = true
	}
	must(w.etcd.Put(t.Context(), foreign, `{"Name":"theirs"}`))(t)
	run(t, w.checkHistory)
	setups = append(setups, fileOption(t, map[string]any{"endpoints": e.ProxyEndpoints()}), func(p *connParams) {
		p.Config.KVStoreLeaseTTL = ttl
		p.Timing.maxHeartbeatAge = time.Hour // there is none
	})
	w.rig = newHarness(t, setups...)
	w.services = newServices(t, w.rig)
	w.others = must(NewSyncStore(w.rig.client, w.rig.scope, ServiceExportsPrefix, "c1"))(t)
	run(t, w.services.Run)
	run(t, w.others.Run)
	w.services.Synced()
	w.others.Synced()
	return w
}

// keys are all that may be desired.
func (w *membersWorld) keys() map[string]bool {
	keys := map[string]bool{}
	for i := range membersNames {
		keys[fmt.Sprint(servicesOfC1, i)] = true
		keys[fmt.Sprint(exportsOfC1, i)] = true
	}
	return keys
}

// churn changes what is desired.
func (w *membersWorld) churn() {
	name, value := fmt.Sprint(w.r.IntN(membersNames)), fmt.Sprintf(`{"Name":"%d"}`, w.r.IntN(1000))
	key, update, remove := servicesOfC1+name, func() { w.services.Upsert(name, []byte(value)) }, func() { w.services.Delete(name) }
	if w.r.IntN(2) == 0 {
		key, update, remove = exportsOfC1+name, func() { w.others.Upsert(name, []byte(value)) }, func() { w.others.Delete(name) }
	}
	if w.r.IntN(4) > 0 {
		w.desired[key] = value
		update()
		return
	}
	w.mu.Lock()
	w.spared[key] = true
	w.mu.Unlock()
	delete(w.desired, key)
	remove()
}

// judge looks at all that happens to the stores' keys, without a gap.
func (w *membersWorld) checkHistory(ctx context.Context) error {
	for ctx.Err() == nil {
		w.mu.Lock()
		from := w.checkedRevision + 1
		w.mu.Unlock()
		watching, leave := context.WithCancel(clientv3.WithRequireLeader(ctx))
		for resp := range w.etcd.Watch(watching, "cilium/state/", clientv3.WithPrefix(), clientv3.WithPrevKV(), clientv3.WithRev(from)) {
			for _, e := range resp.Events {
				w.checkEvent(e)
			}
		}
		leave()
		select {
		case <-ctx.Done():
		case <-time.After(50 * time.Millisecond):
		}
	}
	return ctx.Err()
}

func (w *membersWorld) checkEvent(e *clientv3.Event) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.checkedRevision = max(w.checkedRevision, e.Kv.ModRevision)
	w.changeCount++
	key := string(e.Kv.Key)
	switch ours := w.keys()[key]; {
	case !ours && e.Type == clientv3.EventTypeDelete:
		w.failures = append(w.failures, fmt.Sprintf("%s, which is another's, was deleted at %d", key, e.Kv.ModRevision))
	case ours && e.Type == clientv3.EventTypePut && e.Kv.Lease == 0:
		w.failures = append(w.failures, fmt.Sprintf("%s was written without a lease at %d", key, e.Kv.ModRevision))
	case ours && e.Type == clientv3.EventTypeDelete && !w.spared[key]:
		d := deletion{key: key, revision: e.Kv.ModRevision}
		if e.PrevKv != nil {
			d.lease = e.PrevKv.Lease
		}
		w.deletions = append(w.deletions, d)
	}
}

// settle waits until all is well after something that is over, and judges what
// happened since it was the last time.
func (w *membersWorld) awaitConverged(after string) {
	w.t.Helper()
	w.converge(after)
	w.reportFailures()
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, d := range w.deletions {
		resp, err := w.etcd.TimeToLive(w.t.Context(), clientv3.LeaseID(d.lease))
		check(w.t, err)
		if d.lease == 0 || resp.TTL >= 0 {
			w.failures = append(w.failures, fmt.Sprintf("%s was deleted at %d, and its lease %x lives", d.key, d.revision, d.lease))
		} else {
			w.expired++
		}
	}
	for _, wrong := range w.failures {
		w.t.Error(wrong)
	}
	w.deletions, w.failures = nil, nil
	clear(w.spared)
	for key := range w.keys() {
		if w.desired[key] == "" {
			w.spared[key] = true
		}
	}
}

// converge waits until all is well, for so long as it may take once etcd serves.
func (w *membersWorld) converge(after string) {
	w.t.Helper()
	called, meter := time.Now(), waittest.StartMeter()
	defer meter.Stop()
	for last := error(nil); ; time.Sleep(10 * time.Millisecond) { // between looks
		err := w.compare()
		took := meter.Elapsed()
		switch {
		case err == nil:
			w.t.Logf("all is well %s after %s; the last that was not: %.200v", took.Round(time.Millisecond), after, last)
			w.durations = append(w.durations, took)
			return
		case errors.Is(err, errNotServing) && time.Since(called) < 2*waittest.Limit:
			meter.Restart()
		case took > convergesWithin:
			w.t.Fatalf("%s after %s: %v\nthe log is\n%s", took, after, err, w.rig.log)
		}
		last = err
	}
}

// errNotServing says that etcd does not answer its own client, past all that is under
// test, or not soon enough.
var errNotServing = errors.New("etcd does not serve")

// compare says where etcd is not what it should be.
func (w *membersWorld) compare() error {
	ctx, cancel := context.WithTimeout(w.t.Context(), servesWithin)
	defer cancel()
	if _, err := w.etcd.Put(ctx, "serves", ""); err != nil {
		return fmt.Errorf("%w: %w", errNotServing, err)
	}
	resp, err := w.etcd.Get(ctx, "cilium/s", clientv3.WithPrefix())
	if err != nil {
		return fmt.Errorf("%w: %w", errNotServing, err)
	}
	var differs []string
	left, leases, others := maps.Clone(w.desired), map[int64]bool{}, false
	left[syncedOfC1], left[exportsDone] = "", ""
	for _, kv := range resp.Kvs {
		key := string(kv.Key)
		if key == foreign {
			others = true
			continue
		}
		if want, ok := left[key]; !ok || want != string(kv.Value) && !isSyncedMarker(key) {
			differs = append(differs, fmt.Sprintf("%s is %q, want %q", key, kv.Value, want))
		}
		if !w.rig.leases.has(LeaseID(kv.Lease)) {
			differs = append(differs, fmt.Sprintf("%s is on lease %x, which is none of ours", key, kv.Lease))
		}
		leases[kv.Lease] = true
		delete(left, key)
	}
	if !others {
		differs = append(differs, foreign+" is gone")
	}
	for key := range left {
		differs = append(differs, key+" is missing")
	}
	for id := range leases {
		resp, err := w.etcd.TimeToLive(ctx, clientv3.LeaseID(id))
		if err != nil {
			return fmt.Errorf("%w: %w", errNotServing, err)
		}
		if resp.TTL <= 0 {
			differs = append(differs, fmt.Sprintf("lease %x is over", id))
		}
	}
	if len(differs) == 0 {
		return nil
	}
	slices.Sort(differs)
	return errors.New(strings.Join(differs, "; "))
}

// judged waits until the judge has seen all that has happened so far.
func (w *membersWorld) reportFailures() {
	w.t.Helper()
	resp := must(w.etcd.Put(w.t.Context(), foreign, `{"Name":"theirs"}`))(w.t)
	eventually(w.t, "the judge has seen all", func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		return w.checkedRevision >= resp.Header.Revision
	})
}

// finish says what there was to see.
func (w *membersWorld) finish() {
	w.t.Helper()
	if w.changeCount < 50 {
		w.t.Errorf("only %d changes were seen: the test shows nothing", w.changeCount)
	}
	slices.Sort(w.durations)
	w.t.Logf("%d times well, after %s at worst and %s in the median", len(w.durations),
		w.durations[len(w.durations)-1].Round(time.Millisecond), w.durations[len(w.durations)/2].Round(time.Millisecond))
	w.t.Logf("members: %s; %d changes, %d keys went with leases that were over, %d leases lost; %d keys in the end",
		w.trouble, w.changeCount, w.expired, w.rig.leases.lostCount(), len(w.desired))
}
