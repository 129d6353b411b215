// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package cloudipam_test

import (
	"errors"
	"maps"
	"slices"
	"testing"
	"time"

	v2 "github.com/skep-operator/skep/resources/api/v2"
	"github.com/skep-operator/skep/resources/cloudipam"
	"github.com/skep-operator/skep/resources/cloudipam/cloudtest"
)

// calm is a world without faults, with one node that has a pre-allocate, and a leader that knows it.
func calm(t *testing.T, preAllocate int, edit func(*world)) *world {
	w := newWorld(1)
	t.Cleanup(w.stop)
	w.quiet = true
	for _, name := range []string{"n1", "n2"} {
		w.cloud.Terminate("i-" + name)
		delete(w.nodes, name)
	}
	w.agents["n0"].pools = false
	w.nodes["n0"].Spec.IPAM = v2.IPAMSpec{PreAllocate: preAllocate}
	w.cloud.PerInterface = 40
	if edit != nil {
		edit(w)
	}
	w.now = w.now.Add(time.Hour)
	w.lead()
	return w
}

// process has the cache show the node, and reconciles it.
func (w *world) process() error {
	w.leader.show("n0")
	return w.leader.op.Reconcile(w.ctx, "n0")
}

// reread reads what was requested, and processes the node.
func (w *world) reread(t *testing.T) error {
	t.Helper()
	if err := w.leader.op.ReadWanted(w.ctx); err != nil {
		t.Fatal(err)
	}
	return w.process()
}

// CIPAM-20: nothing is changed again before the instance was read.
func TestAChangeIsReadBeforeTheNext(t *testing.T) {
	w := calm(t, 8, nil)
	for range 3 {
		if err := w.process(); err != nil {
			t.Fatal(err)
		}
	}
	if calls := w.cloud.Calls(); calls[cloudtest.OpAssign] != 1 || len(w.nodes["n0"].Spec.IPAM.Pool) != 0 {
		t.Errorf("%v", calls)
	}
	if err := w.reread(t); err != nil || len(w.nodes["n0"].Spec.IPAM.Pool) != 8 {
		t.Errorf("%v, %v", err, w.nodes["n0"].Spec.IPAM.Pool)
	}
}

// CIPAM-31, K8S-17: a field that the installed definition lacks has the node read once, and again when it has changed.
func TestAFieldThatIsPrunedIsNotReadForEachTime(t *testing.T) {
	w := calm(t, 8, func(w *world) {
		w.prunes = func(n *v2.CiliumNode) {
			for id, of := range n.Status.ENI.ENIs {
				of.ID = ""
				n.Status.ENI.ENIs[id] = of
			}
		}
	})
	if err := errors.Join(w.process(), w.reread(t)); err != nil || len(w.nodes["n0"].Spec.IPAM.Pool) != 8 {
		t.Fatal(err, w.nodes["n0"].Spec.IPAM.Pool)
	}
	edits := func() int {
		t.Helper()
		before := w.edits
		w.leader.show("n0") // as a new revision
		for range 5 {
			if err := w.leader.op.Reconcile(w.ctx, "n0"); err != nil {
				t.Fatal(err)
			}
		}
		return w.edits - before
	}
	for range 2 {
		if count := edits(); count != 1 {
			t.Errorf("%d edits of a revision, want 1", count)
		}
	}
	w.nodes["n0"].Spec.IPAM.MinAllocate = 12
	w.stored(w.nodes["n0"])
	if err := errors.Join(w.process(), w.reread(t)); err != nil || len(w.nodes["n0"].Spec.IPAM.Pool) != 12 {
		t.Error(err, w.nodes["n0"].Spec.IPAM.Pool)
	}
}

// CIPAM-E6, with its delay; CIPAM-22, CIPAM-25 and CIPAM-26.
func TestReleaseWithDelay(t *testing.T) {
	w := calm(t, 40, nil)
	w.leader.op.SetDelay(180)
	if err := errors.Join(w.process(), w.reread(t)); err != nil {
		t.Fatal(err)
	}
	n := w.nodes["n0"]
	n.Spec.IPAM.PreAllocate = 16
	for _, a := range slices.Sorted(maps.Keys(n.Spec.IPAM.Pool))[:4] {
		w.agents["n0"].inUse[a] = true
	}
	w.agents["n0"].sync()
	w.agents["n0"].report()
	release := func() v2.CiliumNode { return *w.nodes["n0"] }
	_ = w.process()
	w.now = w.now.Add(179 * time.Second)
	if _ = w.process(); len(release().Status.IPAM.ReleaseIPs) != 0 {
		t.Errorf("after 179 s: %v", release().Status.IPAM.ReleaseIPs)
	}
	w.now = w.now.Add(time.Second)
	if _ = w.process(); len(release().Status.IPAM.ReleaseIPs) != 20 {
		t.Errorf("after 180 s: %v", release().Status.IPAM.ReleaseIPs)
	}
	w.agents["n0"].sync()
	w.agents["n0"].report()
	_ = w.process()
	got := release()
	if len(got.Spec.IPAM.Pool) != 20 || len(got.Status.IPAM.ReleaseIPs) != 20 || w.cloud.Calls()[cloudtest.OpUnassign] != 1 || len(w.cloud.Owners()) != 20 {
		t.Errorf("%v, %v, %v", got.Spec.IPAM.Pool, got.Status.IPAM.ReleaseIPs, w.cloud.Calls())
	}
	for a, state := range got.Status.IPAM.ReleaseIPs {
		if state != v2.IPReleased {
			t.Errorf("%s is %s", a, state)
		}
	}
	w.agents["n0"].sync()
	w.agents["n0"].report()
	if _ = w.reread(t); len(release().Status.IPAM.ReleaseIPs) != 0 || len(release().Spec.IPAM.Pool) != 20 {
		t.Errorf("%v", release().Status.IPAM.ReleaseIPs)
	}
}

// CIPAM-17 and CIPAM-18: an interface that cannot be used is replaced by a new one; without an empty slot the error stays.
func TestAssignFails(t *testing.T) {
	for slots, want := range map[int]int{2: 8, 1: 0} {
		w := calm(t, 8, func(w *world) { w.cloud.Interfaces = slots })
		failing := true
		w.cloud.Fault = func(operation string) (f cloudtest.Fault) {
			if operation == cloudtest.OpAssign && failing {
				f.Refuse = errors.New("400 bad request")
			}
			return f
		}
		_ = w.process()
		if got := len(w.cloud.Owners()); got != want {
			t.Errorf("%d slots: %d addresses", slots, got)
		}
		if err := w.reread(t); slots == 1 && err == nil {
			t.Error("a failure is not retried")
		}
		failing = false
		w.now = w.now.Add(time.Minute)
		if _ = w.process(); len(w.cloud.Owners()) != 8 {
			t.Errorf("%d slots: %d addresses in the end", slots, len(w.cloud.Owners()))
		}
	}
}

// CIPAM-13: nothing is changed while the last read has failed, and what was read before stays.
func TestReadFails(t *testing.T) {
	w := calm(t, 8, nil)
	broken := true
	w.cloud.Fault = func(operation string) (f cloudtest.Fault) {
		if operation == cloudtest.OpList && broken {
			f.Refuse = errors.New("503")
		}
		return f
	}
	if err := w.leader.op.ReadAll(w.ctx); err == nil {
		t.Fatal("the read succeeds")
	}
	if _ = w.process(); w.cloud.Changes() != 0 {
		t.Errorf("%v", w.cloud.Calls())
	}
	broken = false
	if err := errors.Join(w.leader.op.ReadAll(w.ctx), w.process()); err != nil || w.cloud.Changes() != 1 {
		t.Errorf("%v, %v", err, w.cloud.Calls())
	}
}

// CIPAM-8: nodes that are new are read together. CIPAM-33: an instance that a read of all does not have is read alone.
func TestReadsAreTogether(t *testing.T) {
	w := calm(t, 8, nil)
	for i := range 200 {
		w.register("m"+string(rune('A'+i%26))+string(rune('a'+i/26)), false)
	}
	for name := range w.nodes {
		w.leader.show(name)
		w.leader.reconcile(name)
	}
	if err := w.leader.op.ReadWanted(w.ctx); err != nil {
		t.Fatal(err)
	}
	if calls := w.cloud.Calls(); calls[cloudtest.OpGet] != 1 || calls[cloudtest.OpList] != 1 {
		t.Errorf("%v", calls)
	}
	w.cloud.Terminate("i-n0")
	for range 3 {
		_ = w.leader.op.ReadAll(w.ctx)
		_ = w.leader.op.ReadWanted(w.ctx)
	}
	if calls := w.cloud.Calls(); calls[cloudtest.OpGet] != 2 {
		t.Errorf("%v", calls)
	}
}

// CIPAM-14.
func TestBackoff(t *testing.T) {
	for _, test := range []struct {
		failure, nodes int
		random         float64
		least, most    time.Duration
	}{
		{1, 1, 0, 690 * time.Millisecond, 700 * time.Millisecond},
		{1, 1, 1, 1380 * time.Millisecond, 1390 * time.Millisecond},
		{3, 1000, 1, 55 * time.Second, 56 * time.Second},
		{3, 1000, 0, 6 * time.Second, 7 * time.Second},
		{30, 5000, 1, 5 * time.Minute, 5 * time.Minute},
	} {
		if got := cloudipam.Backoff(test.failure, test.nodes, test.random); got < test.least || got > test.most {
			t.Errorf("%+v: %s", test, got)
		}
	}
}
