// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package lockgc

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/skep-operator/skep/resources/kvstore"
	"github.com/skep-operator/skep/resources/kvstore/kvstoretest"
	"github.com/skep-operator/skep/resources/operatortest"
	"github.com/skep-operator/skep/runtime/cell"
)

// often has runs follow each other quickly.
var often = cell.Decorate(func(c Config) Config { c.KVStoreLockGCInterval = 100 * time.Millisecond; return c })

// spy stands between the cell and its client: it counts runs, and lets a test
// interfere at a certain moment.
type spy struct {
	kvstore.Client
	onList   func(run int) error // before a listing
	onDelete func() error        // before a request that deletes
	dead     []kvstore.LeaseID   // leases that do not exist, whatever etcd says

	mu   sync.Mutex
	runs int
}

// between makes the cell use the spy.
func (s *spy) between() cell.Cell {
	return cell.Decorate(func(c kvstore.Client) kvstore.Client { s.Client = c; return s })
}

func (s *spy) List(ctx context.Context, prefix string, opts ...kvstore.ListOption) (kvstore.Listing, error) {
	s.mu.Lock()
	s.runs++
	run := s.runs
	s.mu.Unlock()
	if s.onList != nil {
		if err := s.onList(run); err != nil {
			return kvstore.Listing{}, err
		}
	}
	return s.Client.List(ctx, prefix, opts...)
}

func (s *spy) RemoveEach(ctx context.Context, all []kvstore.Removal) ([]bool, error) {
	if s.onDelete != nil && len(all) > 0 {
		if err := s.onDelete(); err != nil {
			return nil, err
		}
	}
	return s.Client.RemoveEach(ctx, all)
}

func (s *spy) LeaseAlive(ctx context.Context, id kvstore.LeaseID) (bool, error) {
	if slices.Contains(s.dead, id) {
		return false, nil
	}
	return s.Client.LeaseAlive(ctx, id)
}

// begun is how many runs have begun.
func (s *spy) begun() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.runs
}

// ran waits until so many more runs have begun: all but the last have ended.
func (s *spy) ran(t *testing.T, more int) {
	t.Helper()
	want := s.begun() + more
	operatortest.Eventually(t, fmt.Sprintf("%d more runs", more), func() bool { return s.begun() >= want })
}

func lead(t *testing.T, endpoint string, s *spy) *operatortest.Operator {
	t.Helper()
	return operatortest.Start(t, cell.Set(kvstore.Cell, Cell, often, s.between()), "", kvstoretest.Args(endpoint)...)
}

func count(t *testing.T, e *kvstoretest.Etcd, prefix string) int64 {
	t.Helper()
	resp, err := e.Client.Get(t.Context(), prefix, clientv3.WithPrefix(), clientv3.WithCountOnly())
	if err != nil {
		t.Fatal(err)
	}
	return resp.Count
}

// LOCK-3, LOCK-5, LOCK-7, LOCK-10 and LOCK-11; LOCK-E10, LOCK-E13 and LOCK-E14.
func TestStuckLocks(t *testing.T) {
	t.Parallel()
	e := kvstoretest.Start(t, 1)
	lease := e.Grant(time.Hour)
	for i := range 103 {
		e.Put(fmt.Sprintf("%sk8s:a=%d;/%x", locks, i, lease), "", lease)
	}
	large := locks + strings.Repeat("k8s:a=b;", 9<<10) + "/"
	e.Put(fmt.Sprintf("%s%x", large, lease), "", lease)
	e.Put(large+"another", "", lease)
	others := []string{large + "another", "cilium/.initlock/abcd/1234", "cilium/state/identities/v1/id/1", "cilium/state/identities/v1/locksmith/1"}
	for _, key := range others {
		e.Put(key, "v", 0)
	}
	left := map[int]int64{} // locks at the start of a run
	s := &spy{}
	s.onList = func(run int) error { left[run] = count(t, e, locks); return nil }
	o := lead(t, e.Endpoints()[0], s)
	operatortest.Eventually(t, "all are gone", func() bool { return o.MetricSum("kvstore_locks_swept_total") == 103 })
	s.ran(t, 2)
	o.Stop()
	if left[1] != 105 || left[2] != 105 || left[3] != 2 {
		t.Errorf("locks at the start of runs: %v", left)
	}
	for _, key := range others {
		if e.Get(key) == nil {
			t.Errorf("%s was deleted", key)
		}
	}
	if n, all := o.Log().Count(`"level":"warning"`, "deleted identity lock", "k8s:a=7;", kvstore.LeaseID(lease).String()), o.Log().Count(`"level":"warning"`, "deleted identity lock"); n != 1 || all != 100 {
		t.Errorf("%d warnings, %d for one lock", all, n)
	}
	if n := o.Log().Count(`"level":"warning"`, "deleted more identity locks", `"locks":3`); n != 1 {
		t.Errorf("%d lines of those after the first hundred", n)
	}
	if n := o.Log().Count(`"level":"warning"`, "ignoring locks with keys that are too large", `"keys":2`); n != 1 {
		t.Errorf("%d warnings of large keys", n)
	}
	written := 0
	for _, w := range o.Book.Writes(0) {
		if w.Module == "lockgc" {
			written++
			if w.Verb != "txn" || w.Cause.Rule != "lockgc sweep" || w.Result != "ok" {
				t.Errorf("the book has %s", w)
			}
		}
	}
	if written != 103 {
		t.Errorf("%d writes are in the book", written)
	}
}

// LOCK-5 and LOCK-6; LOCK-E11 and LOCK-E12, in etcd. LOCK-7: what changes between the
// look and the delete is left alone.
func TestLocksThatLive(t *testing.T) {
	t.Parallel()
	e := kvstoretest.Start(t, 1)
	lease := e.Grant(time.Hour)
	again, racing := locks+"again/1", locks+"racing/1"
	holder, waiter := locks+"queue/1", locks+"queue/2"
	take := func(key string) { e.Delete(key); e.Put(key, "", lease) }
	for _, key := range []string{again, racing, holder, waiter} {
		e.Put(key, "", lease)
	}
	there := map[int][]bool{}
	s := &spy{}
	s.onList = func(run int) error {
		if run == 2 {
			take(again)
		}
		if run <= 4 {
			there[run] = []bool{e.Get(again) != nil, e.Get(holder) != nil, e.Get(waiter) != nil}
		}
		if run > 2 {
			take(racing) // is never seen twice from now on
		}
		return nil
	}
	s.onDelete = func() error {
		if s.begun() == 2 {
			take(racing)
		}
		return nil
	}
	o := lead(t, e.Endpoints()[0], s)
	s.ran(t, 5)
	o.Stop()
	for run, want := range map[int][]bool{2: {true, true, true}, 3: {true, false, true}, 4: {false, false, false}} {
		if !slices.Equal(there[run], want) {
			t.Errorf("before run %d there are again, holder, waiter: %v, want %v", run, there[run], want)
		}
	}
	if e.Get(racing) == nil {
		t.Error("a lock that was taken again in between was taken away")
	}
}

// LOCK-8: a lock whose lease does not exist is taken away at once. One without a
// lease, and one whose lease cannot be asked for, wait.
func TestLeaseIsGone(t *testing.T) {
	t.Parallel()
	e := kvstoretest.Start(t, 1)
	gone, alive := e.Grant(time.Hour), e.Grant(time.Hour)
	e.Put(locks+"a/1", "", gone)
	e.Put(locks+"b/1", "", alive)
	e.Put(locks+"c/1", "", 0)
	var second []bool
	s := &spy{dead: []kvstore.LeaseID{kvstore.LeaseID(gone)}}
	s.onList = func(run int) error {
		if run == 2 {
			for _, name := range []string{"a/1", "b/1", "c/1"} {
				second = append(second, e.Get(locks+name) != nil)
			}
		}
		return nil
	}
	o := lead(t, e.Endpoints()[0], s)
	s.ran(t, 3)
	o.Stop()
	if !slices.Equal(second, []bool{false, true, true}) {
		t.Errorf("before the second run there are %v", second)
	}
	if n := o.Log().Count(`"level":"warning"`, "deleted identity lock", "its lease is gone"); n != 1 {
		t.Errorf("%d warnings", n)
	}
}

// Number 20 of the contract's heartbeat-and-locks.md; LOCK-7 and LOCK-9: a run that fails loses nothing of what was seen, and what
// cannot be deleted is tried again.
func TestFailedRuns(t *testing.T) {
	t.Parallel()
	e := kvstoretest.Start(t, 1)
	e.Put(locks+"a/1", "", 0)
	e.Put(locks+"b/1", "", 0)
	var at []int // runs that tried to delete
	s := &spy{}
	s.onList = func(run int) error {
		if run == 2 || run == 3 {
			return errors.New("the list failed")
		}
		return nil
	}
	s.onDelete = func() error {
		at = append(at, s.begun())
		if len(at) == 1 {
			return errors.New("the delete failed")
		}
		return nil
	}
	o := lead(t, e.Endpoints()[0], s)
	s.ran(t, 6)
	o.Stop()
	if !slices.Equal(at, []int{4, 5}) {
		t.Errorf("runs that deleted: %v", at)
	}
	if n := o.Log().Count(`"level":"warning"`, "lockgc sweep", "the list failed"); n != 1 {
		t.Errorf("%d warnings for a row of failures", n)
	}
	if n := count(t, e, locks); n != 0 {
		t.Errorf("%d locks are left", n)
	}
}

// LOCK-2: an etcd that is away, at the start and later, is waited for; a run
// after a lost lease writes nothing; another term begins anew.
func TestFaults(t *testing.T) {
	t.Parallel()
	e := kvstoretest.Start(t, 1)
	door := e.Proxy(t, "etcd-0")
	door.Refuse(t)
	var o *operatortest.Operator
	s := &spy{}
	lost := false
	s.onDelete = func() error {
		if !lost {
			lost = true
			o.LoseLease() // between the look and the delete
		}
		return nil
	}
	e.Put(locks+"a/1", "", 0)
	o = lead(t, e.ProxyEndpoints()[0], s)
	operatortest.Eventually(t, "etcd is known to be away", func() bool { return len(o.Degraded("kvstore")) > 0 })
	if s.begun() != 0 {
		t.Error("locks were looked for in an etcd that is away")
	}
	door.Heal(t)
	s.ran(t, 3)
	if e.Get(locks+"a/1") == nil || o.MetricSum("kvstore_locks_swept_total") != 0 {
		t.Fatal("a lock was taken away after the term")
	}
	o.LeaveTerm()
	if held := o.MetricSum("kvstore_locks_held"); held != 0 {
		t.Errorf("%v locks are held as a standby sees it", held)
	}
	first := s.begun()
	s.onList = func(run int) error {
		if run == first+2 && e.Get(locks+"a/1") == nil {
			t.Error("the first run of a term deleted a lock")
		}
		return nil
	}
	o.EnterTerm()
	operatortest.Eventually(t, "the lock is gone", func() bool { return e.Get(locks+"a/1") == nil })
}
