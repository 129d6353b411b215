// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package alibabacloud

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/skep-operator/skep/resources/k8s"
	"github.com/skep-operator/skep/resources/outside"
	"github.com/skep-operator/skep/resources/reconcile"
)

// upkeep deletes interfaces that could not be attached, and not be deleted at once.
type upkeep struct {
	session *session
	queue   *reconcile.Queue[task]
	add     func(task, ...k8s.Trigger) // to the queue
	log     *slog.Logger

	mu     sync.Mutex
	orders map[string]order // whose outcome is not known, by token
}

// task is an interface to delete: the one with an id, or the one that was perhaps created for a token.
type task struct{ id, token string }

func newUpkeep(s *session, deps reconcile.Deps) *upkeep {
	u := &upkeep{session: s, log: deps.Log, orders: map[string]order{}}
	u.queue = reconcile.NewQueue(deps, "interfaces", u.reconcile, reconcile.Workers(1), reconcile.Backoff(time.Second, time.Minute))
	u.add = u.queue.Add
	return u
}

func (u *upkeep) run(ctx context.Context) error { return u.queue.Run(ctx) }

// remove has an interface be deleted.
func (u *upkeep) remove(id string) { u.add(task{id: id}, k8s.Trigger{Kind: "Interface", Name: id}) }

// resolve has the interface be deleted that was perhaps created.
func (u *upkeep) resolve(o order) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.orders[o.token] = o
	u.add(task{token: o.token}, k8s.Trigger{Kind: "Instance", Name: o.instance})
}

func (u *upkeep) reconcile(ctx context.Context, t task) error {
	err := u.process(ctx, t)
	if asked := new(outside.ThrottledError); errors.As(err, &asked) {
		return reconcile.RequeueAfter(max(asked.RetryAfter(), time.Second))
	}
	return err
}

func (u *upkeep) process(ctx context.Context, t task) error {
	if t.id != "" {
		return u.removeDetached(ctx, t.id)
	}
	u.mu.Lock()
	o, known := u.orders[t.token]
	u.mu.Unlock()
	if !known {
		return nil
	}
	id, err := u.session.create(ctx, o) // ECS answers with the interface that it has created for the token, or creates one
	switch {
	case err == nil:
		err = u.removeDetached(ctx, id)
	case isFinal(err):
		err = nil
	}
	if err == nil {
		u.mu.Lock()
		defer u.mu.Unlock()
		delete(u.orders, t.token)
	}
	return err
}

// removeDetached deletes an interface, unless it is attached after all: then it is used.
func (u *upkeep) removeDetached(ctx context.Context, id string) error {
	n, exists, err := u.session.interfaceOf(ctx, id)
	switch {
	case err != nil:
		return err
	case exists && n.Status == inUse:
		u.log.Info("an interface was attached after all, using it", "interface", id, "instance", n.InstanceID)
		return nil
	}
	return u.session.remove(ctx, id) // one that is not shown yet, too
}
