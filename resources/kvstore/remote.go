// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package kvstore

import (
	"context"
	"errors"
	"iter"
	"time"

	"github.com/skep-operator/skep/resources/k8s"
	"github.com/skep-operator/skep/resources/reconcile"
	"github.com/skep-operator/skep/runtime/job"
	"github.com/skep-operator/skep/runtime/lifecycle"
)

// Remote is a connection to the etcd of another cluster. It only reads, and shares nothing with the connection of this
// cluster. It is safe for concurrent use.
type Remote struct {
	client *client
	deps   reconcile.Deps
}

// NewRemote returns a connection that does not run. file is the client configuration, in the format of etcd's own tools;
// it may come later. Endpoints that name Services are resolved by services, which may be nil.
func NewRemote(file string, d reconcile.Deps, services k8s.Client) (*Remote, error) {
	p := connParams{Config: DefaultConfig, Scope: d, Metrics: newMetrics(), Timing: newTiming(d.Log), Remote: true}
	p.Config.KVStoreOpt = map[string]string{"etcd.config": file}
	p.Timing.check = p.Timing.checkMemberDown // whether the cluster is reachable decides about what is known of it
	if services != nil {
		p.Services = services
	}
	c, err := newConn(p)
	if err != nil {
		return nil, err
	}
	return &Remote{&client{c, d.Module.ID}, d}, nil
}

// closeTimeout bounds the end of a connection.
const closeTimeout = 10 * time.Second

// Run connects, and checks the connection, until ctx ends. It retries without limit, and is called once.
func (r *Remote) Run(ctx context.Context) error {
	c := r.client.conn
	panicked := make(chan *lifecycle.PanicError, 1)
	jobs := job.NewGroup(r.client.module, r.deps.Health, job.Hooks{
		Failed: func(name, action string, repeated bool, err error) {
			if !repeated {
				c.log.Warn("etcd of another cluster is not connected", "action", action, "error", err)
			}
		},
		Panicked: func(_ string, value any, stack []byte) {
			select {
			case panicked <- &lifecycle.PanicError{Value: value, Stack: stack}:
			default:
			}
		},
	})
	jobs.Add("connect", c.connect())
	jobs.Add("check", checkJob(c))
	jobs.Add("heartbeat", heartbeatJob(c))
	if err := jobs.Start(ctx); err != nil {
		return err
	}
	var panicErr *lifecycle.PanicError
	select {
	case <-ctx.Done():
	case panicErr = <-panicked:
	}
	closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
	defer cancel()
	err := errors.Join(jobs.Stop(closing), c.Stop(closing))
	if panicErr != nil {
		panic(panicErr) // the caller's job reports it
	}
	return errors.Join(ctx.Err(), err)
}

// Status returns the result of the last check.
func (r *Remote) Status() Status { return r.client.Status() }

// Watch is as that of a [Client], but ends when the data of etcd are replaced. What the new data lack is not yielded as
// deleted: it may not have been written yet.
func (r *Remote) Watch(ctx context.Context, prefix string) iter.Seq[Event] {
	return r.client.watch(ctx, prefix, watchHooks{onRestore: func() {}, knownKeys: func() []string { return nil }, endOnRestore: true})
}
