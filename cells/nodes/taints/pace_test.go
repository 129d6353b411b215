// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package taints

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/skep-operator/skep/resources/reconcile"
	"github.com/skep-operator/skep/resources/stream/slim"
	"github.com/skep-operator/skep/runtime/cell"
	"github.com/skep-operator/skep/runtime/health"
)

// refusals are patches that all are refused, each after a millisecond.
type refusals struct {
	mu             sync.Mutex
	began          time.Time
	underWay, most int
	attempts       map[slim.Key][]time.Duration
}

func (r *refusals) patch(_ context.Context, key slim.Key) error {
	r.mu.Lock()
	r.underWay++
	r.most = max(r.most, r.underWay)
	r.attempts[key] = append(r.attempts[key], time.Since(r.began))
	r.mu.Unlock()
	time.Sleep(time.Millisecond) // what a request takes, by the clock of the bubble
	r.mu.Lock()
	defer r.mu.Unlock()
	r.underWay--
	return errors.New("refused")
}

// Number 26 of the contract's nodes.md; NTNT-9: at most ten patches of a thousand nodes that are refused are under way, and each is tried
// again after 1 s, then twice that, up to 2 min.
func TestRefusedPatchesArePaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &refusals{began: time.Now(), attempts: map[slim.Key][]time.Duration{}}
		c := newController(params{Config: Config{TaintSyncWorkers: 10}})
		deps := reconcile.Deps{Module: cell.ModuleInfo{ID: "nodes.taints"}, Log: slog.New(slog.DiscardHandler), Health: health.NewTree().Reporter("nodes.taints")}
		q := reconcile.NewQueue(deps, "reconcile", r.patch, c.QueueOptions()...)
		ctx, cancel := context.WithCancel(t.Context())
		defer synctest.Wait()
		defer cancel()
		go func() { _ = q.Run(ctx) }()
		for i := range 1000 {
			q.Add(slim.Key{Namespace: taintKeys, Name: fmt.Sprint("n", i)})
		}
		time.Sleep(7 * time.Minute) // of the clock of the bubble: nine attempts of each
		synctest.Wait()
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.most > 10 || len(r.attempts) != 1000 {
			t.Errorf("%d patches at once, of %d nodes", r.most, len(r.attempts))
		}
		for key, at := range r.attempts {
			checkPauses(t, key, at)
		}
	})
}

// checkPauses checks the pauses between attempts, of which each may have waited for the others of its second.
func checkPauses(t *testing.T, key slim.Key, at []time.Duration) {
	t.Helper()
	pauses := []time.Duration{1, 2, 4, 8, 16, 32, 64, 120, 120}
	if len(at) < len(pauses) {
		t.Errorf("%s has %d attempts", key, len(at))
		return
	}
	for i := 1; i < len(at); i++ {
		pause, want := at[i]-at[i-1], pauses[min(i, len(pauses))-1]*time.Second
		if pause < want || pause > want+time.Second {
			t.Errorf("%s is tried again after %s, not %s", key, pause, want)
		}
	}
}
