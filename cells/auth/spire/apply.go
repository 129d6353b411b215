// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package spire

import (
	"context"
	"fmt"
	"iter"
	"maps"
	"slices"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc/codes"

	"github.com/skep-operator/skep/cells/auth/spire/internal/entryapi"
	"github.com/skep-operator/skep/resources/domain/identity"
	"github.com/skep-operator/skep/resources/explain"
	"github.com/skep-operator/skep/resources/k8s"
	"github.com/skep-operator/skep/resources/stream/ciliumio"
	"github.com/skep-operator/skep/resources/sweep"
)

// compareAll lists all entries. It returns the identities that have none, and keeps the entries whose identities do not exist.
func (c *controller) compareAll(ctx context.Context) (missing iter.Seq[identity.Number], err error) {
	listed, err := c.Server.list(ctx)
	if err != nil {
		return nil, err
	}
	c.at = entriesOf(listed)
	clear(c.refused)
	numbers := maps.Clone(c.at)
	if c.Identities != nil {
		for n := range c.Identities.all() {
			if _, known := numbers[n]; !known {
				numbers[n] = nil
			}
		}
	}
	all := compare(maps.Keys(numbers), c.state, c.at)
	c.stale, c.compared = all.remove, c.now()
	c.Metrics.Compared.Set(float64(c.compared.Unix()))
	if len(c.stale) == 0 {
		c.Health.Child("stale").OK("")
	}
	if !all.none() {
		c.Log.Info("registration entries differ from identities", "entries", len(listed), "missing", len(all.create), "stale", len(all.remove))
	}
	return slices.Values(all.create), nil
}

// confirm returns the identities whose stale entries may be deleted: those of this cluster, that a cache which is as new as
// the list does not have either, if they are no implausible share. What was reported needs no confirmation.
func (c *controller) confirm(ctx context.Context, stale []removal) ([]identity.Number, error) {
	if c.Identities == nil {
		return numbersOf(stale), nil
	}
	stale = slices.DeleteFunc(stale, func(r removal) bool { return !c.own.Contains(r.number) })
	if len(stale) > 0 {
		if err := c.Identities.stream.WaitForFresh(ctx); err != nil {
			return nil, fmt.Errorf("confirming that %d identities do not exist: %w", len(stale), err)
		}
		stale = slices.DeleteFunc(stale, func(r removal) bool { return c.state(r.number) != deleted })
	}
	limit := c.Health.Child("stale")
	if sweep.Implausible(len(stale), len(c.at), c.Sweep.SweepMaxShare) {
		limit.Degraded(fmt.Sprintf("%d of %d registration entries are of identities that do not exist, none is deleted: set --sweep-max-share=1 if they should be", len(stale), len(c.at)), nil)
		return nil, nil
	}
	limit.OK("")
	return numbersOf(stale), nil
}

// apply makes changes in batches, several calls at once. Entries that the server refuses are tried again later, and keep no
// others from being changed.
func (c *controller) apply(ctx context.Context, ch changes) error {
	if ch.none() {
		return nil
	}
	calls, limited := errgroup.WithContext(ctx)
	calls.SetLimit(parallel)
	created, removed := make([]entryapi.Result, len(ch.create)), make([]entryapi.Result, len(ch.remove))
	for from := 0; from < len(ch.create); from += batchSize {
		to := min(from+batchSize, len(ch.create))
		calls.Go(func() error {
			results, err := c.Server.create(withTriggers(limited, ch.create[from:to]), ch.create[from:to])
			copy(created[from:to], results)
			return err
		})
	}
	for from := 0; from < len(ch.remove); from += batchSize {
		to := min(from+batchSize, len(ch.remove))
		calls.Go(func() error {
			results, err := c.Server.remove(withTriggers(limited, numbersOf(ch.remove[from:to])), ch.remove[from:to])
			copy(removed[from:to], results)
			return err
		})
	}
	if err := calls.Wait(); err != nil {
		return err
	}
	for i, n := range ch.create {
		c.recordCreated(n, created[i])
	}
	for i, r := range ch.remove {
		c.recordRemoved(r, removed[i])
	}
	explain.SetReason(ctx, fmt.Sprintf("%d entries created, %d deleted, %d refused", len(ch.create), len(ch.remove), len(c.refused)))
	return nil
}

// withTriggers makes the identities of a batch the triggers of its call.
func withTriggers(ctx context.Context, numbers []identity.Number) context.Context {
	triggers := make([]k8s.Trigger, len(numbers))
	for i, n := range numbers {
		triggers[i] = k8s.Trigger{Kind: ciliumio.Identities.Name(), Name: n.String()}
	}
	return k8s.WithCause(ctx, &k8s.Cause{Rule: explain.CauseOf(ctx).Rule, Triggers: triggers})
}

// recordCreated records what became of a creation. One that has existed already is as good.
func (c *controller) recordCreated(n identity.Number, r entryapi.Result) {
	switch {
	case r.Code != codes.OK && r.Code != codes.AlreadyExists:
		c.refuse(n, fmt.Errorf("creating the entry of %s: %s: %s", pathOf(n), r.Code, r.Message))
	case r.Entry.ID == "" || r.Entry.SPIFFEID.Path != pathOf(n):
		c.refuse(n, fmt.Errorf("creating the entry of %s: the server answers with entry %q of %s", pathOf(n), r.Entry.ID, r.Entry.SPIFFEID))
	default:
		c.at[n] = []string{r.Entry.ID}
		delete(c.refused, n)
	}
}

func (c *controller) recordRemoved(removed removal, r entryapi.Result) {
	n := removed.number
	if r.Code != codes.OK && r.Code != codes.NotFound {
		c.refuse(n, fmt.Errorf("deleting the entry of %s: %s: %s", pathOf(n), r.Code, r.Message))
		return
	}
	if c.at[n] = slices.DeleteFunc(c.at[n], func(id string) bool { return id == removed.entry }); len(c.at[n]) == 0 {
		delete(c.at, n)
		delete(c.refused, n)
	}
}

func (c *controller) refuse(n identity.Number, err error) {
	if len(c.refused) == 0 {
		c.Log.Warn("the SPIRE server refuses an entry, retrying", "error", err)
	}
	c.refused[n] = c.refused[n].again(err, c.now())
}

// report sets metrics and health.
func (c *controller) report() {
	if c.Identities != nil {
		desired := int64(c.Identities.store.Len()) - c.ignored.Load()
		c.Metrics.Entries.WithLabelValues(stateDesired).Set(float64(desired))
	}
	c.Metrics.Entries.WithLabelValues(statePresent).Set(float64(len(c.at)))
	c.Metrics.Entries.WithLabelValues(stateRefused).Set(float64(len(c.refused)))
	part := c.Health.Child("entries")
	for n, r := range c.refused {
		part.Degraded(fmt.Sprintf("the SPIRE server refuses %d entries, that of identity %s among them", len(c.refused), n), r.err)
		return
	}
	part.OK("")
}
