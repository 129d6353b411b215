// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package main

import (
	"context"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/skep-operator/skep/runtime/seedtest"
)

// LEAD-10, LEAD-12: a lease that is emptied by hand is no release: its holder goes on and restores it,
// and a standby writes nothing, under load in a pool that is nearly full. The same with
// a holder that is killed at that moment: the lease is waited out.
func TestAnEmptiedLeaseIsNoRelease(t *testing.T) {
	const renewals = time.Second // long enough for a standby to write meanwhile
	timing := []string{
		"--leader-election-lease-duration=6s", "--leader-election-renew-deadline=5s", "--leader-election-retry-period=" + renewals.String(),
	}
	seed := seedtest.Seed(t)
	w := newWorld(t)
	judge, audit := newJudge(w), w.Audit(t)
	first, _ := w.operator("first", timing)
	first.leads()
	second, _ := w.operator("second", timing)
	second.says("standing by", 1)
	ctx, stop := context.WithCancel(t.Context())
	var churn sync.WaitGroup
	churn.Go(func() { w.churn(ctx, rand.New(rand.NewPCG(seed, 2))) })
	holder := *w.lease().Spec.HolderIdentity

	for range 12 {
		given := judge.given()
		w.emptyLease()
		eventually(t, "the lease names a holder", func() bool { return ptr.Deref(w.lease().Spec.HolderIdentity, "") != "" })
		eventually(t, "blocks are given", func() bool { return judge.given() > given })
	}
	if now := *w.lease().Spec.HolderIdentity; now != holder {
		t.Errorf("%s holds the lease, not %s: it was no release", now, holder)
	}
	if n := first.log.Count("the lease was edited"); n != 12 {
		t.Errorf("the holder logs %d edits of its lease, not 12", n)
	}
	emptied := time.Now() // the standby cannot have seen it before
	w.emptyLease()
	first.kill()
	second.leads()
	stop()
	churn.Wait()
	w.settled()
	judge.finish()
	for _, write := range w.requests(audit, "second").writes() {
		if waited := write.RequestReceivedTimestamp.Sub(emptied); waited < 5*time.Second {
			t.Errorf("the standby wrote %s after the lease was emptied: %s", waited, requests{write})
		}
	}
}

// emptyLease does what `kubectl patch` does.
func (w *world) emptyLease() {
	w.t.Helper()
	patch := []byte(`{"spec":{"holderIdentity":""}}`)
	_, err := w.core.CoordinationV1().Leases(w.namespace).Patch(w.t.Context(), leaseName, types.MergePatchType, patch, metav1.PatchOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
}
