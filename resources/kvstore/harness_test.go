// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package kvstore

import (
	"context"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/skep-operator/skep/resources/clustertest"
	"github.com/skep-operator/skep/resources/k8s"
	"github.com/skep-operator/skep/resources/leading"
	"github.com/skep-operator/skep/resources/operatortest"
	"github.com/skep-operator/skep/resources/reconcile"
	"github.com/skep-operator/skep/runtime/cell"
	"github.com/skep-operator/skep/runtime/health"
	"github.com/skep-operator/skep/runtime/job"
	"github.com/skep-operator/skep/runtime/waittest"
)

// harness is a connection as the cell makes it, without a hive.
type harness struct {
	*client
	fence *leading.Fence
	scope reconcile.Deps
	jobs  *job.Runner
	log   *logRecorder
	once  sync.Once
	err   error // of stopping
}

// setup changes a harness before it starts.
type setup func(*connParams)

func option(key, value string) setup {
	return func(p *connParams) { p.Config.KVStoreOpt[key] = value }
}

// quick removes the pauses between checks and does not expect a heartbeat.
func quick(p *connParams) {
	p.Timing.check, p.Timing.checkMemberDown, p.Timing.checkUnhealthy = 100*time.Millisecond, 100*time.Millisecond, 100*time.Millisecond
	p.Timing.maxHeartbeatAge = time.Hour
	p.Timing.maxRelistDelay = 200 * time.Millisecond
}

func newHarness(t *testing.T, setups ...setup) *harness {
	t.Helper()
	r := &harness{fence: leading.Unfenced(), log: &logRecorder{}}
	log := slog.New(r.log)
	r.scope = reconcile.Deps{Module: cell.ModuleInfo{ID: "test", Term: "leader"}, Log: log, Health: health.NewTree().Reporter("test")}
	p := connParams{Config: DefaultConfig, Fence: r.fence, Scope: r.scope, Metrics: newMetrics(), Timing: defaultTiming}
	p.Config.KVStoreOpt = map[string]string{"etcd.qps": "10000"}
	for _, change := range setups {
		change(&p)
	}
	c, err := newConn(p)
	if err != nil {
		t.Fatal(err)
	}
	r.client = &client{c, "test"}
	r.jobs = job.NewGroup("test", r.scope.Health, job.Hooks{Failed: func(name, action string, repeated bool, err error) {
		if !repeated { // as the hive does
			log.Warn("job failed", "job", name, "action", action, "error", err)
		}
	}})
	for name, j := range map[string]job.Job{
		"connect": c.connect(), "restore": restoreJob(c), "check": checkJob(c), "heartbeat": heartbeatJob(c),
	} {
		r.jobs.Add(name, j)
	}
	if err := c.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := r.jobs.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.stop(); err != nil {
			t.Error(err)
		}
	})
	return r
}

// stop stops the connection as the runtime would. A second call does nothing.
func (r *harness) stop() error {
	r.once.Do(func() {
		ctx, cancel := context.WithTimeout(context.Background(), waittest.Limit)
		defer cancel()
		if r.err = r.jobs.Stop(ctx); r.err == nil {
			r.err = r.conn.Stop(ctx)
		}
		r.fence.Close()
	})
	return r.err
}

// to sets the endpoint of an etcd without TLS and users.
func to(endpoint string) setup { return option("etcd.address", endpoint) }

// ready waits for the connection.
func (r *harness) ready(t *testing.T) *harness {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), waittest.Limit)
	defer cancel()
	if err := r.AwaitConnected(ctx); err != nil {
		t.Fatalf("%v; the log is\n%s", err, r.log)
	}
	return r
}

// eventually waits for a state.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	operatortest.Eventually(t, what, holds)
}

// withCause returns the context of a test's own writes.
func withCause(t *testing.T) context.Context {
	return k8s.WithCause(t.Context(), &k8s.Cause{Rule: "test"})
}

// directClient returns etcd's own client, independent of the code under test.
func directClient(t *testing.T, e *clustertest.Etcd) *clientv3.Client {
	t.Helper()
	c, err := clientv3.New(clientv3.Config{
		Endpoints: e.Endpoints(), TLS: e.TLSConfig(t), Username: e.Username(), Password: e.Password(),
		DialTimeout: waittest.Limit, Logger: zap.NewNop(),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// read returns a key of etcd, or nil.
func read(t *testing.T, c *clientv3.Client, key string) *Entry {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), waittest.Limit)
	defer cancel()
	resp, err := c.Get(ctx, key)
	if err != nil {
		t.Fatal(err)
	}
	if len(resp.Kvs) == 0 {
		return nil
	}
	e := entryOf(resp.Kvs[0])
	return &e
}

// holds reports whether a key has a value.
func holds(t *testing.T, c *clientv3.Client, key, value string) bool {
	t.Helper()
	e := read(t, c, key)
	return e != nil && string(e.Value) == value
}

// must returns the value of a call that must not fail: must(call())(t).
func must[T any](v T, err error) func(*testing.T) T {
	return func(t *testing.T) T {
		t.Helper()
		check(t, err)
		return v
	}
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// sampleCount returns the number of observations of a histogram.
func sampleCount(t *testing.T, h *prometheus.HistogramVec, labels ...string) uint64 {
	t.Helper()
	var m dto.Metric
	check(t, h.WithLabelValues(labels...).(prometheus.Metric).Write(&m))
	return m.GetHistogram().GetSampleCount()
}

// run runs a function until the test ends.
func run(t *testing.T, f func(context.Context) error) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); _ = f(ctx) }()
	stop = sync.OnceFunc(func() { cancel(); <-done })
	t.Cleanup(stop)
	return stop
}
