// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/skep-operator/skep/resources/clustertest"
	"github.com/skep-operator/skep/resources/kvstore/kvstoretest"
	"github.com/skep-operator/skep/runtime/seedtest"
	"github.com/skep-operator/skep/runtime/waittest"
)

// How long the operator may take until all is well when its etcd is; see slowness.
const etcdCalmsWithin = 5 * time.Second

// An operator with all duties of etcd, whose etcd has three members, of which some are killed and paused all the time, while
// Services, nodes and identities come and go: when all are back, the store is as it should be within seconds, every key on
// a lease that lives if it should have one, and health says that all is well. On the way no key was deleted that was live
// all the time, none was written without its lease, and none of an agent was touched; nodes get their CIDRs meanwhile. In
// the long form all members then stand still for twice as long as leases live. SKEP_SEED repeats a run. The stores
// themselves go through the same, and through other outages, in resources/kvstore.
func TestEtcdMembersOfAnOperatorComeAndGo(t *testing.T) {
	seed := seedtest.Seed(t)
	modes := []string{"kvstore", "doublewrite-readkvstore"}
	if !seedtest.Soak() {
		mode := modes[seed%uint64(len(modes))]
		t.Logf("identities of the mode %s", mode)
		membersComeAndGo(t, seed, mode, 20*time.Second)
		return
	}
	for _, mode := range modes {
		t.Run(mode, func(t *testing.T) { membersComeAndGo(t, seed, mode, 5*time.Minute) })
	}
}

func membersComeAndGo(t *testing.T, seed uint64, mode string, length time.Duration) {
	const leaseTTL = 25 * time.Second // the shortest
	w, e := newWorld(t), kvstoretest.Start(t, 3)
	m := newChurnInEtcd(newEtcdDuties(w, e, mode), seed)
	file := filepath.Join(t.TempDir(), "etcd.config")
	if err := os.WriteFile(file, []byte("endpoints: ["+strings.Join(e.Endpoints(), ", ")+"]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	o, _ := w.run("member", nil, m.withDuties("--kvstore-opt=etcd.qps=1000,etcd.config="+file, fmt.Sprint("--kvstore-lease-ttl=", leaseTTL))...)
	o.leads()
	for range 50 {
		m.act()
	}
	o.until("the store has converged", func() bool { return m.compare() == nil })

	var all []time.Duration
	trouble := clustertest.NewTrouble(t, e.Etcd, seed)
	calm := func(excused ...string) {
		w.served(fmt.Sprint("served-", len(all))) // etcd is no matter of theirs
		w.deleteNodes(fmt.Sprint("served-", len(all)))
		trouble.Heal(t)
		m.agentsAreDone()
		all = append(all, calmsDown(o, e, m.compare, excused...))
		eventually(t, "keys of gone nodes and of unused identities are gone", m.garbageIsGone)
		m.judge()
	}
	for began := time.Now(); time.Since(began) < length; calm() {
		for range 5 + m.r.IntN(10) {
			trouble.Act(t)
			for range m.r.IntN(10) {
				m.act()
			}
			time.Sleep(time.Duration(m.r.IntN(500)) * time.Millisecond) // a pace, not a wait
		}
	}
	if seedtest.Soak() {
		trouble.PauseAll(t)
		for began := time.Now(); time.Since(began) < 2*leaseTTL; { // the length of the outage
			m.act()
			time.Sleep(50 * time.Millisecond) // a pace, not a wait
		}
		calm("lockgc") // a look that failed is repeated in its own time
	}
	slices.Sort(all)
	t.Logf("%d times well, after %s at worst and %s in the median; members: %s; %s", len(all),
		all[len(all)-1].Round(time.Millisecond), all[len(all)/2].Round(time.Millisecond), trouble, m)
	if n := o.log.Count("panicked"); n > 0 {
		t.Errorf("the operator has panicked: %d lines of the log say so", n)
	}
	if code := o.stop(); code != 0 {
		t.Errorf("exit code %d", code)
	}
}

// calmsDown waits until all is well when the members are back, and returns how long
// that took once etcd served and the operator led.
func calmsDown(o *operator, e *kvstoretest.Etcd, compare func() error, excused ...string) time.Duration {
	t := o.t
	t.Helper()
	since, called, meter := servedRevision(t, e), time.Now(), waittest.StartMeter()
	defer meter.Stop()
	for last := error(nil); ; time.Sleep(20 * time.Millisecond) { // between looks
		asked := time.Now()
		servedRevision(t, e)
		serves := time.Since(asked) < time.Second
		s, ok := o.status()
		stands := ok && !s.Election.Leading // a lease that was lost is another test's
		err := cmp.Or(etcdIsRight(o, e, since, excused...), compare())
		took := meter.Elapsed()
		switch {
		case err == nil:
			t.Logf("all is well %s after the members are back; the last that was not: %v", took.Round(time.Millisecond), last)
			return took
		case (!serves || errors.Is(err, context.DeadlineExceeded) || stands) && time.Since(called) < waittest.Limit:
			meter.Restart()
		case took > slowness*etcdCalmsWithin || !o.running():
			t.Fatalf("%s after the members are back: %v", took, err)
		}
		last = err
	}
}

// servedRevision waits until etcd serves, and is how far it is then.
func servedRevision(t *testing.T, e *kvstoretest.Etcd) (revision int64) {
	t.Helper()
	eventually(t, "etcd serves", func() bool {
		resp, err := e.Client.Get(t.Context(), "no key")
		if err == nil {
			revision = resp.Header.Revision
		}
		return err == nil
	})
	return revision
}

// etcdIsRight says what is not as it should be: the heart has beaten since a revision,
// the cluster's configuration is there, both on leases that live, and health is well,
// but for the duties that are excused.
func etcdIsRight(o *operator, e *kvstoretest.Etcd, since int64, excused ...string) error {
	beat, config := e.Get(heartbeatKey), e.Get(configKey)
	switch {
	case beat == nil || beat.ModRevision <= since:
		return fmt.Errorf("the heart has not beaten since revision %d", since)
	case config == nil || !strings.HasPrefix(string(config.Value), `{"id":1,"capabilities":`):
		return fmt.Errorf("the configuration is %v", config)
	}
	for _, kv := range []int64{beat.Lease, config.Lease} {
		if resp, err := e.Client.TimeToLive(o.t.Context(), clientv3.LeaseID(kv)); err != nil || resp.TTL <= 0 {
			return fmt.Errorf("lease %x is over (%v)", kv, err)
		}
	}
	s, ok := o.status()
	for _, d := range s.Degraded {
		if duty, _, _ := strings.Cut(d.ID, "."); !slices.Contains(excused, duty) {
			return fmt.Errorf("degraded: %s", s.degraded())
		}
	}
	if !ok {
		return errors.New("the operator does not tell its status")
	}
	return nil
}
