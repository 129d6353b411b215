// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package aws

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/skep-operator/skep/resources/k8s"
	"github.com/skep-operator/skep/resources/outside"
	"github.com/skep-operator/skep/resources/reconcile"
)

// upkeep deletes interfaces that nothing uses, and completes those whose creation was interrupted.
type upkeep struct {
	session *session
	queue   *reconcile.Queue[task]
	trigger k8s.Trigger
	log     *slog.Logger

	marked []string // seen unattached by the last run

	mu     sync.Mutex
	active map[string]bool // being attached
}

// task is an interface to modify. The zero value is garbage collection.
type task struct{ id, attachment string }

// batch is how many interfaces a run deletes, or a few more.
const batch = 25

func newUpkeep(s *session, deps reconcile.Deps) *upkeep {
	u := &upkeep{session: s, trigger: deps.TermTrigger(), log: deps.Log, active: map[string]bool{}}
	u.queue = reconcile.NewQueue(deps, "interfaces", u.reconcile, reconcile.Workers(1), reconcile.Backoff(time.Second, time.Minute))
	return u
}

func (u *upkeep) run(ctx context.Context) error {
	if u.session.Config.ENIGCInterval > 0 {
		u.queue.Add(task{}, u.trigger)
	}
	return u.queue.Run(ctx)
}

// protect has an interface be left alone while it is attached.
func (u *upkeep) protect(id string) (end func()) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.active[id] = true
	return func() {
		u.mu.Lock()
		defer u.mu.Unlock()
		delete(u.active, id)
	}
}

func (u *upkeep) isActive(id string) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.active[id]
}

// modify has an attached interface be deleted when its instance is terminated.
func (u *upkeep) modify(id, attachment string) {
	u.queue.Add(task{id, attachment}, k8s.Trigger{Kind: "Interface", Name: id})
}

func (u *upkeep) reconcile(ctx context.Context, t task) error {
	if t == (task{}) {
		return u.collect(ctx)
	}
	err := u.session.deleteWithInstance(ctx, t.id, t.attachment)
	if code := codeOf(err); code == codeNoInterface || code == codeNoAttachment {
		return nil // it was detached, or deleted, and has no instance any more
	}
	return err
}

// collect deletes the interfaces that the previous run has seen unattached, and remembers those that are now. EC2 does not
// delete one that was attached meanwhile.
func (u *upkeep) collect(ctx context.Context) error {
	var failed []error
	for _, id := range u.marked {
		if u.isActive(id) {
			continue
		}
		switch err := u.session.remove(ctx, id); {
		case err == nil:
			u.log.Info("deleted an interface that nothing uses", "interface", id)
		case isInUse(err) || errors.Is(err, outside.ErrPlanned):
			u.log.Debug("interface is not deleted", "interface", id, "error", err)
		default:
			failed = append(failed, fmt.Errorf("deleting interface %s: %w", id, err))
		}
	}
	u.marked = nil // what is left is seen again
	if err := errors.Join(failed...); err != nil {
		return err
	}
	b, err := u.session.begin(ctx)
	if err != nil {
		return err
	}
	if u.marked, err = u.session.unattached(ctx, b.tags, batch); err != nil {
		return err
	}
	return reconcile.RequeueAfter(u.session.Config.ENIGCInterval)
}

// isInUse reports whether an interface is not deleted because it is attached.
func isInUse(err error) bool {
	return codeOf(err) == codeInUse || isError(err, codeInvalid, "in use") || strings.HasPrefix(codeOf(err), "OperationNotPermitted")
}
