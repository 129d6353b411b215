// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package kvstore

import (
	"context"
	"log/slog"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/skep-operator/skep/resources/dryrun"
	"github.com/skep-operator/skep/resources/explain"
	"github.com/skep-operator/skep/resources/k8s"
	"github.com/skep-operator/skep/resources/leading"
	"github.com/skep-operator/skep/resources/reconcile"
	"github.com/skep-operator/skep/runtime/cell"
	"github.com/skep-operator/skep/runtime/job"
	"github.com/skep-operator/skep/runtime/lifecycle"
)

// Cell connects to etcd for the duration of a term and provides each module of the
// term with a client.
var Cell = cell.Module("kvstore", "Connects the leader to etcd; all writes pass one fence",
	cell.Config(DefaultConfig),
	cell.EnabledBy(InUse),
	k8s.RBAC(k8s.Allow("get", schema.GroupResource{Resource: "services"})),

	cell.Metrics(newMetrics),
	cell.ProvideProcess(newCurrentConn, newHealthCheck, newSection),
	cell.ProvidePrivate(newTermConn),
	cell.ProvidePerModule(newClient),
	cell.Hook("connection", openConn),
	cell.Job("connect", (*conn).connect),
	cell.Job("restore", restoreJob),
	cell.Job("check", checkJob),
	cell.Job("heartbeat", heartbeatJob),
	cell.Annotate(troubleshootCommand),
	cell.Annotate(keysCommand),
	cell.Annotate(keysOfShell),
)

type provideParams struct {
	cell.In

	Config  Config
	Fence   *leading.Fence `optional:"true"` // nil: read-only
	Client  k8s.Client     `optional:"true"`
	Scope   reconcile.Deps
	Metrics *storeMetrics
	Book    *explain.History `optional:"true"`
	Plan    *dryrun.Plan     `optional:"true"`
	Log     *slog.Logger
}

func newTermConn(p provideParams) (*conn, error) {
	params := connParams{
		Config: p.Config, Scope: p.Scope, Metrics: p.Metrics, Book: p.Book, Plan: p.Plan, Timing: newTiming(p.Log),
	}
	if p.Fence != nil {
		params.Fence = p.Fence
	}
	if p.Client != nil {
		params.Services = p.Client
	}
	return newConn(params)
}

func newClient(s cell.ModuleInfo, c *conn) Client { return &client{c, s.ID} }

// currentConn holds the term's connection for the health check of the process.
type currentConn struct{ conn atomic.Pointer[conn] }

func newCurrentConn() *currentConn { return &currentConn{} }

type healthCheckOut struct {
	cell.Out

	Check k8s.HealthCheck `group:"health checks"`
}

// newHealthCheck feeds the health endpoint. A replica that does not lead has no
// connection and is healthy.
func newHealthCheck(b *currentConn) healthCheckOut {
	return healthCheckOut{Check: k8s.HealthCheck{Name: "kvstore", Check: func(context.Context) error {
		if c := b.conn.Load(); c != nil {
			return c.health.healthErr()
		}
		return nil
	}}}
}

// openConn is the lifecycle hook of the connection: its users stop before it closes.
func openConn(c *conn, b *currentConn) lifecycle.Hook {
	return lifecycle.Funcs{
		OnStart: func(ctx context.Context) error { b.conn.Store(c); return c.Start(ctx) },
		OnStop: func(ctx context.Context) error {
			b.conn.CompareAndSwap(c, nil)
			return c.Stop(ctx)
		},
	}
}

func restoreJob(c *conn) job.Job   { return c.restoreQueue.Job() }
func checkJob(c *conn) job.Job     { return c.health.job() }
func heartbeatJob(c *conn) job.Job { return c.health.watchHeartbeat() }
