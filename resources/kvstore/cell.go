// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package kvstore

import (
	"context"
	"log/slog"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/skep-operator/skep/resources/explain"
	"github.com/skep-operator/skep/resources/k8s"
	"github.com/skep-operator/skep/resources/plan"
	"github.com/skep-operator/skep/resources/reconcile"
	"github.com/skep-operator/skep/runtime/cell"
	"github.com/skep-operator/skep/runtime/job"
	"github.com/skep-operator/skep/runtime/lifecycle"
)

// Cell connects to etcd for the term that it stands in, and gives every module
// of the term a client.
var Cell = cell.Module("kvstore", "Connects the leader to etcd, with one door for all writes",
	cell.Config(DefaultConfig),
	cell.EnabledBy(InUse),
	k8s.RBAC(k8s.Allow("get", schema.GroupResource{Resource: "services"})),

	cell.Metrics(newMetrics),
	cell.Lasting(newBoard, newHealthCheck),
	cell.ProvidePrivate(provideConn),
	cell.PerModule(newClient),
	cell.Hook("connection", openConn),
	cell.Job("connect", (*conn).connect),
	cell.Job("restore", restoreJob),
	cell.Job("check", checkJob),
	cell.Job("heartbeat", heartbeatJob),
)

type provideParams struct {
	cell.In

	Config  Config
	Fence   *k8s.Fence `optional:"true"` // without one nothing is written
	Client  k8s.Client `optional:"true"`
	Scope   reconcile.Scope
	Metrics *storeMetrics
	Book    *explain.Book `optional:"true"`
	Plan    *plan.Plan    `optional:"true"`
	Log     *slog.Logger
}

func provideConn(p provideParams) (*conn, error) {
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

func newClient(s cell.Scope, c *conn) Client { return &client{c, s.ID} }

// board is where the health check of the process finds the term's connection.
type board struct{ current atomic.Pointer[conn] }

func newBoard() *board { return &board{} }

type healthCheckOut struct {
	cell.Out

	Check k8s.HealthCheck `group:"health checks"`
}

// newHealthCheck answers for the contract's health endpoint. A replica that
// does not lead has no etcd that could be ill.
func newHealthCheck(b *board) healthCheckOut {
	return healthCheckOut{Check: k8s.HealthCheck{Name: "kvstore", Check: func(context.Context) error {
		if c := b.current.Load(); c != nil {
			return c.status.verdict()
		}
		return nil
	}}}
}

// openConn is the hook of the connection: what uses it stops before it closes.
func openConn(c *conn, b *board) lifecycle.Hook {
	return lifecycle.Funcs{
		OnStart: func(ctx context.Context) error { b.current.Store(c); return c.Start(ctx) },
		OnStop: func(ctx context.Context) error {
			b.current.CompareAndSwap(c, nil)
			return c.Stop(ctx)
		},
	}
}

func restoreJob(c *conn) job.Job   { return c.restore.Job() }
func checkJob(c *conn) job.Job     { return c.status.job() }
func heartbeatJob(c *conn) job.Job { return c.status.watchHeartbeat() }
