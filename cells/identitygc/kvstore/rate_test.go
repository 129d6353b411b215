// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package kvstore

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/time/rate"

	"github.com/skep-operator/skep/resources/cluster"
	"github.com/skep-operator/skep/resources/identitygc"
	"github.com/skep-operator/skep/resources/kvstore"
	"github.com/skep-operator/skep/resources/sweep"
	"github.com/skep-operator/skep/runtime/cell"
	"github.com/skep-operator/skep/runtime/health"
	"github.com/skep-operator/skep/runtime/metrics"
)

// memory is a store of unused identities.
type memory struct {
	kvstore.Client
	keys    map[string]string
	removed []time.Duration // when each was
	began   time.Time
}

func (*memory) AwaitConnected(context.Context) error { return nil }
func (*memory) Status() kvstore.Status               { return kvstore.Status{} }

func (m *memory) List(_ context.Context, prefix string, _ ...kvstore.ListOption) (kvstore.Listing, error) {
	if prefix == values {
		return kvstore.Listing{}, nil
	}
	return listing("", m.keys), nil
}

func (m *memory) RemoveEach(_ context.Context, all []kvstore.Removal) ([]bool, error) {
	done := make([]bool, len(all))
	for i, r := range all {
		delete(m.keys, r.Key)
		m.removed, done[i] = append(m.removed, time.Since(m.began)), true
	}
	return done, nil
}

// IDKV-11; IDKV-E11: 6000 unused identities, 2500 deletes a minute, of which another collector takes 500.
func TestRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &memory{keys: map[string]string{}, began: time.Now()}
		for n := range 6000 {
			m.keys[fmt.Sprint(ids, 1000+n)] = fmt.Sprintf("k8s:n=%d;", n)
		}
		config, log, tree := identitygc.DefaultConfig, slog.New(slog.DiscardHandler), health.NewTree()
		budget := identitygc.NewBudget(config)
		c := newController(params{
			Config: config, Cluster: cluster.DefaultConfig, Budget: budget, Store: m, Log: log,
			Sweep:   sweep.Deps{Module: cell.ModuleInfo{ID: "identitygc.kvstore"}, Log: log, Health: tree.Reporter("identitygc.kvstore"), MaxShare: 1},
			Metrics: identitygc.NewMetrics(metrics.Factory{}), Keys: newMetrics(metrics.Factory{}),
		})
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); _ = c.run(ctx) }()
		time.Sleep(15*time.Minute - time.Second)
		if len(m.removed) > 0 {
			t.Errorf("%d are deleted in the first interval", len(m.removed))
		}
		for range 500 {
			_ = budget.Wait(ctx)
		}
		time.Sleep(4 * time.Minute)
		stop()
		<-done
		if len(m.removed) != 6000 {
			t.Fatalf("%d are deleted", len(m.removed))
		}
		batch := int(float64(rate.Limit(2500)/60) * batchTime.Seconds())
		for first, last := 0, 0; last < len(m.removed); last++ {
			for m.removed[last]-m.removed[first] >= time.Minute {
				first++
			}
			if n := last - first + 1; n > 2500+batch {
				t.Fatalf("%d deletes in the minute before %s", n, m.removed[last])
			}
		}
		if took := m.removed[5999] - 15*time.Minute; took < 2*time.Minute || took > 3*time.Minute {
			t.Errorf("it took %s", took)
		}
	})
}
