// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package reconcile

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/skep-operator/skep/runtime/metrics"
)

// series are the series of all queues: the values of counters and gauges, and the counts of histograms.
func series(t *testing.T, m *queueMetrics) map[string]float64 {
	t.Helper()
	collectors, err := metrics.Collectors(m)
	if err != nil {
		t.Fatal(err)
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors...)
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]float64{}
	for _, f := range families {
		for _, s := range f.GetMetric() {
			id := []string{strings.TrimPrefix(f.GetName(), "op_")}
			for _, l := range s.GetLabel() {
				id = append(id, l.GetValue())
			}
			all[strings.Join(id, " ")] = s.GetCounter().GetValue() + s.GetGauge().GetValue() + float64(s.GetHistogram().GetSampleCount())
		}
	}
	for id, n := range all { // names of other releases
		if here, also := strings.CutPrefix(id, "k8s_"); also {
			if all[here] != n {
				t.Errorf("%s is %v, and %s is %v", id, n, here, all[here])
			}
			delete(all, id)
		}
	}
	return all
}

// MET-E8, MET-E9.
func TestMetricsOfAQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, started, release := newRig(), make(chan struct{}), make(chan struct{})
		r.scope.metrics = newQueueMetrics(metrics.Factory{Namespace: "op", Subsystem: "reconcile"})
		r.scope.config = Config{ControllerGroupMetrics: []string{"other", "ipam.test/give-out"}}
		failed := false
		q := NewQueue(r.scope, "give out", func(_ context.Context, key string) error {
			switch {
			case key == "slow":
				started <- struct{}{}
				<-release
			case key == "later":
				return RequeueAfter(time.Hour)
			case key == "bad" && !failed:
				failed = true
				return errors.New("no")
			}
			return nil
		}, Workers(1))
		q.Add("slow")
		r.run(t, q.Run)
		<-started
		for _, key := range []string{"bad", "later", "bad"} {
			q.Add(key)
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		got := series(t, r.scope.metrics)
		const name = " ipam.test/give-out"
		want := map[string]float64{
			"workqueue_depth" + name: 2, "workqueue_adds_total" + name: 3,
			"workqueue_queue_duration_seconds" + name: 1, "workqueue_work_duration_seconds" + name: 0,
			"workqueue_unfinished_work_seconds" + name: 2, "workqueue_longest_running_processor_seconds" + name: 2,
			"workqueue_retries_total" + name: 0,
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Error("while an attempt is under way:", diff)
		}
		close(release)
		time.Sleep(time.Minute)
		synctest.Wait()
		got = series(t, r.scope.metrics)
		for id, n := range map[string]float64{
			"workqueue_depth" + name: 0, "workqueue_retries_total" + name: 2, "workqueue_work_duration_seconds" + name: 4,
			"workqueue_unfinished_work_seconds" + name:         0,
			"controllers_group_runs_total" + name + " success": 3, "controllers_group_runs_total" + name + " failure": 1,
		} {
			if got[id] != n {
				t.Errorf("%s is %v, not %v", id, got[id], n)
			}
		}
		r.stop()
		got = series(t, r.scope.metrics)
		for id := range got {
			if strings.HasPrefix(id, "workqueue_depth") || strings.Contains(id, "unfinished") || strings.Contains(id, "longest") {
				t.Errorf("%s is that of a queue that has ended", id)
			}
		}
		if got["workqueue_adds_total"+name] != 4 {
			t.Errorf("counters do not last: %v", got)
		}
	})
}

// MET-E9.
func TestGroupsOfRuns(t *testing.T) {
	for groups, want := range map[string]bool{
		"": false, "none": false, "all": true, "none,a/b": true, "a/b": true, "A/B": false, "write-cni-file,sync-host-ips": false,
	} {
		if got := (Config{strings.Split(groups, ",")}).selects("a/b"); got != want {
			t.Errorf("%q: %v", groups, got)
		}
	}
}

// The metrics cost a queue that nothing collects them of no key.
func TestAQueueWithoutMetrics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig()
		r.scope.config = Config{ControllerGroupMetrics: []string{"all"}}
		done := 0
		q := NewQueue(r.scope, "test", func(context.Context, string) error { done++; return nil }, Workers(1))
		r.run(t, q.Run)
		for i := range 10 {
			q.Add(fmt.Sprint(i))
		}
		synctest.Wait()
		r.stop()
		if done != 10 {
			t.Errorf("%d keys are done", done)
		}
	})
}
