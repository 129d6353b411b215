// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package kvstore

import (
	"context"
	"fmt"
	"log/slog"
	"strconv"
	"time"

	"github.com/skep-operator/skep/resources/cluster"
	"github.com/skep-operator/skep/resources/domain/identity"
	"github.com/skep-operator/skep/resources/identitygc"
	"github.com/skep-operator/skep/resources/k8s"
	"github.com/skep-operator/skep/resources/kvstore"
	"github.com/skep-operator/skep/resources/sweep"
	"github.com/skep-operator/skep/runtime/cell"
	"github.com/skep-operator/skep/runtime/health"
)

// controller deletes unused identities. All but run is of the sweep's goroutine.
type controller struct {
	params
	own        identity.Range // other numbers belong to other clusters
	sweep      *sweep.Sweep[id, unused]
	remembered map[identity.Number]int64 // the unused identities of the last scan, with their revisions
	reported   scanResult                // by the last scan
	scanned    int                       // identities in the running sweep, -1 before its scan
	leasesLost int                       // up to the last scan
}

type params struct {
	cell.In

	Config    identitygc.Config
	Cluster   cluster.Config
	Budget    identitygc.Budget
	Store     kvstore.Client
	Sweep     sweep.Deps
	Metrics   *identitygc.Metrics
	Keys      *keyMetrics
	Deletions identity.Deletions `optional:"true"`
	Health    health.Reporter
	Log       *slog.Logger
}

// A request has at most so many deletes, and not more than are allowed in a time: they wait for each other.
const (
	maxBatch  = 512
	batchTime = 10 * time.Second
)

func newController(p params) *controller {
	c := &controller{params: p, scanned: -1, own: identity.RangeOf(p.Cluster.ClusterID, p.Cluster.MaxConnectedClusters)}
	allowed := float64(p.Budget.Limit()) * batchTime.Seconds()
	c.sweep = sweep.New(p.Sweep, sweep.Spec[id, unused]{
		Rule: "collect", Interval: p.Config.IdentityGCInterval, Grace: p.Config.IdentityGCInterval,
		Rate: p.Budget.Limiter, Batch: int(max(1, min(maxBatch, allowed))),
		Scan: c.scan, DeleteBatch: c.delete, Trigger: trigger, Ended: c.recordSweep, Namespace: namespaceOf,
	})
	return c
}

func (c *controller) run(ctx context.Context) error {
	if err := c.Store.AwaitConnected(ctx); err != nil {
		return err
	}
	return c.sweep.Run(ctx)
}

// scan lists the identities, then their users: a user is written after its identity.
func (c *controller) scan(ctx context.Context) (found sweep.Found[id, unused], err error) {
	if lost := c.Store.Status().LeasesLost; lost != c.leasesLost {
		c.leasesLost = lost
		c.forget() // those of agents may be lost, too
	}
	identities, err := c.Store.List(ctx, kvstore.Folder(kvstore.IdentitiesPrefix), kvstore.UpTo(kvstore.LongestLabels))
	if err != nil {
		c.forget()
		return found, err
	}
	values, err := c.Store.List(ctx, kvstore.Folder(kvstore.IdentityValuesPrefix), kvstore.UpTo(kvstore.LongestLabels))
	if err != nil {
		c.forget()
		return found, err
	}
	s := scan(c.own, identities, values, c.remembered)
	c.remembered, c.scanned = s.remembered, s.count
	c.report(s)
	return s.Found, nil
}

// forget has all identities start anew as candidates: while etcd was unreachable, agents could not say what they use.
func (c *controller) forget() {
	c.remembered = nil
	c.sweep.Reset(func(id) bool { return true })
}

// delete deletes identities that are unchanged and unused still.
func (c *controller) delete(ctx context.Context, all []unused) ([]sweep.Outcome, error) {
	removals := make([]kvstore.Removal, len(all))
	for i, u := range all {
		removals[i] = u.removal()
	}
	removed, err := c.Store.RemoveEach(ctx, removals)
	outcomes := make([]sweep.Outcome, len(removed))
	var deleted []identity.Number
	for i, done := range removed {
		outcomes[i] = sweep.Changed
		if done {
			outcomes[i] = sweep.Deleted
			deleted = append(deleted, all[i].number)
		}
	}
	if c.Deletions != nil && len(deleted) > 0 {
		c.Deletions.Deleted(deleted...)
	}
	return outcomes, err
}

// recordSweep sets the metrics of the original.
func (c *controller) recordSweep(r sweep.Result) {
	c.Metrics.CountRun(identitygc.InKVStore, r.Err != nil, r.Took)
	if c.scanned >= 0 {
		deleted := r.Outcomes[sweep.Deleted]
		c.Metrics.SetEntries(identitygc.InKVStore, c.scanned-deleted, deleted)
	}
	c.scanned = -1
	if r.Outcomes[sweep.Failed] > 0 {
		c.forget()
	}
}

// report sets the metrics, and logs the first identities of each defect.
func (c *controller) report(s scanResult) {
	before := c.reported
	c.reported = s
	c.reported.Found, c.reported.remembered = sweep.Found[id, unused]{}, nil
	c.Keys.Skipped.WithLabelValues(foreignNumber).Set(float64(s.foreign))
	c.reportKeys(noNumber, "ignoring keys of identities without a valid number", s.misnamed, before.misnamed)
	c.reportKeys(badLabels, "identities have label strings that cannot be decoded", s.unclean, before.unclean)
	c.reportKeys(badUser, "users of identities have no valid number, they keep all with their labels", s.badUsers, before.badUsers)
	switch {
	case len(s.large) > 0:
		c.Health.Degraded(fmt.Sprintf("%d identities are not collected, since their labels are too large to be read (more than %d KiB, or 4 where there are many): remove the keys by hand if no node uses them, at first %s",
			len(s.large), kvstore.LongestLabels>>10, s.large[0]), nil)
	case len(before.large) > 0:
		c.Health.OK("")
	}
	if mostlyForeign(s) && !mostlyForeign(before) {
		c.Log.Warn("nearly all identities have numbers of other clusters, the cluster id may be wrong",
			"identities", s.foreign, "clusterID", c.Cluster.ClusterID, "from", c.own.Min, "to", c.own.Max)
	}
}

func (c *controller) reportKeys(reason, message string, keys, before []string) {
	c.Keys.Skipped.WithLabelValues(reason).Set(float64(len(keys)))
	if len(keys) > 0 && len(before) == 0 {
		c.Log.Warn(message, "keys", len(keys), "example", keys[0])
	}
}

// mostlyForeign reports whether at least nine of ten identities belong to other clusters.
func mostlyForeign(s scanResult) bool { return s.foreign > 0 && 10*s.foreign >= 9*s.count }

// namespaceOf is the namespace of the pods of an identity.
func namespaceOf(u unused) string { return identity.NamespaceIn(u.labels) }

func trigger(u unused) k8s.Trigger {
	return k8s.Trigger{
		Kind: "etcd key", Name: kvstore.Key(kvstore.IdentitiesPrefix, u.number.String()), ResourceVersion: strconv.FormatInt(u.revision, 10),
	}
}
