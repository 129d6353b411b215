// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package cluster

import (
	"context"
	"fmt"
	"strings"
	"syscall"
	"time"

	"github.com/skep-operator/skep/cmd/bench/internal/contest"
)

// The names of what is measured of an outage.
const (
	outageConverged = "etcd answers again → all keys are as they should be"
	outageWrites    = "requests that write"
	outageLive      = "keys of existing objects that were deleted"
)

func (b KVBench) outageExport() export {
	e := b.nodesExport()
	if b.OutageOf == "services" {
		e = b.servicesExport("services", b.Services, 1)
	}
	e.n = b.OutageKeys
	return e
}

func (b KVBench) outageContest() contest.Contest {
	return contest.Contest{
		Name: "outage", Title: fmt.Sprintf("All members of etcd are killed for %s, with keys of %d %s; %d objects change meanwhile", b.Down, b.OutageKeys, b.OutageOf, b.Churn),
		Note: "Three members, SIGKILL. etcd answers again with the first put of the bench that succeeds. etcd's own client puts the changed keys, " +
			"by 32 workers, after the operator is done.",
		Contestants: kvContestants,
		Measures: []contest.Measure{
			{Name: outageConverged, Unit: "s", Budget: contest.Budget{AtMost: 5}},
			{Name: outageWrites},
			{Name: outageLive, Budget: contest.Budget{Nothing: true}},
		},
	}
}

func (b KVBench) outage(ctx context.Context, r record) error {
	e := b.outageExport()
	return b.onStore(ctx, 3, func(ctx context.Context, p *plane, s *store) error {
		b.Progress(fmt.Sprintf("creating %d %s", e.n, e.kind))
		if err := e.fill(ctx, p); err != nil {
			return err
		}
		keys, err := s.track(ctx, e.prefix)
		if err != nil {
			return err
		}
		markers, err := s.track(ctx, "cilium/synced/")
		if err != nil {
			return err
		}
		b.Progress("the operator starts")
		o, err := b.start(ctx, p, s, e.args...)
		if err != nil {
			return err
		}
		defer o.end(syscall.SIGKILL)
		if err := keys.holds(ctx, func(t *tracker) bool { return e.written(t, markers) }); err != nil {
			return err
		}
		keys.reset()
		b.Progress(fmt.Sprintf("etcd is killed for %s", b.Down))
		if err := s.kill(ctx); err != nil {
			return err
		}
		changed, err := b.churn(ctx, p, e)
		if err != nil {
			return err
		}
		back, err := s.recover(ctx)
		if err != nil {
			return err
		}
		b.Progress("etcd answers again")
		if err := keys.holds(ctx, func(t *tracker) bool { return t.haveAll(changed) }); err != nil {
			return err
		}
		_, last := keys.span()
		if err := sleep(ctx, watched); err != nil { // what else is written or deleted
			return err
		}
		r(ours, contest.Figures{outageConverged: max(0, last.Sub(back).Seconds()), outageWrites: float64(keys.count()), outageLive: float64(keys.deleted())})
		values := keys.valuesOf(changed)
		took, err := s.put(ctx, values)
		r(bare, contest.Figures{outageConverged: took.Seconds(), outageWrites: float64(len(values))})
		return err
	})
}

// churn changes objects until the time of the outage is over, each at least once, and returns what their keys have to hold.
func (b KVBench) churn(ctx context.Context, p *plane, e export) (map[string]string, error) {
	began, want := time.Now(), make([]string, b.Churn)
	for times := 1; times == 1 || time.Since(began) < b.Down; times++ {
		err := paced(ctx, 0, b.Churn, func(ctx context.Context, i int) (err error) {
			want[i], err = e.change(ctx, p, i, times)
			return err
		})
		if err != nil {
			return nil, err
		}
		if err := sleep(ctx, time.Second); err != nil {
			return nil, err
		}
	}
	all := map[string]string{}
	for i, text := range want {
		all[e.key(i)] = text
	}
	return all, nil
}

// recover starts the members and returns when one of them has taken a put.
func (s *store) recover(ctx context.Context) (at time.Time, err error) {
	if err := s.startAgain(ctx); err != nil {
		return at, err
	}
	err = until(ctx, func() (bool, error) {
		once, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		_, err := s.client.Put(once, "bench/alive", "")
		at = time.Now()
		return err == nil, nil
	})
	return at, err
}

// haveAll reports whether keys have these texts. The caller holds the lock.
func (t *tracker) haveAll(want map[string]string) bool {
	for key, text := range want {
		if !strings.Contains(t.values[key], text) {
			return false
		}
	}
	return true
}
