// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package crd

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/skep-operator/skep/resources/cluster"
	"github.com/skep-operator/skep/resources/domain/identity"
	"github.com/skep-operator/skep/resources/identitygc"
	"github.com/skep-operator/skep/resources/k8s"
	"github.com/skep-operator/skep/resources/reconcile"
	"github.com/skep-operator/skep/resources/stream"
	"github.com/skep-operator/skep/resources/stream/ciliumio"
	"github.com/skep-operator/skep/resources/stream/slim"
	"github.com/skep-operator/skep/resources/sweep"
	"github.com/skep-operator/skep/runtime/cell"
	"github.com/skep-operator/skep/runtime/job"
)

// controller marks unused CiliumIdentities, and deletes them.
type controller struct {
	params
	policy      gcPolicy
	mayBeScarce bool        // unused identities go sooner while numbers are scarce
	scarce      atomic.Bool // at the last scan
	sweep       *sweep.Sweep[id, *ciliumio.Identity]
	marks       *reconcile.Queue[string]
	ready       chan struct{} // closed when all stores are synced
	store       *stream.Store[ciliumio.Identity]

	mu       sync.Mutex // guards the following; never held during a request
	lastScan time.Time  // time of the last scan
	marked   []slim.UID // marked since
	reused   []slim.UID // candidates that were in use since
	few      time.Time  // when few went last of namespaces that are not believed

	refreshing sync.Mutex // guards the following, also during requests
	refreshed  time.Time  // when the stores were fresh last

	// Of the sweep's goroutine:
	history  history
	reported scanResult      // by the last scan
	scanned  int             // identities in the running sweep, -1 before its scan
	ignored  map[string]bool // namespaces that were named for endpoints that do not count
}

type params struct {
	cell.In

	Config      identitygc.Config
	Cluster     cluster.Config
	Budget      identitygc.Budget
	Identities  stream.Resource[ciliumio.Identity]
	Referrers   []referrers `group:"users of identities"`
	Client      k8s.Client
	Permissions *k8s.Permissions
	Sweep       sweep.Deps
	Reconcile   reconcile.Deps
	Jobs        job.Group
	Metrics     *identitygc.Metrics
	Marks       *markMetrics
	Log         *slog.Logger
}

// workers is the number of concurrent deletes, and of concurrent marks.
const workers = 8

func newController(p params) *controller {
	c := &controller{params: p, ready: make(chan struct{}), history: history{}, scanned: -1, ignored: map[string]bool{}}
	c.policy = gcPolicy{
		own:      identity.RangeOf(p.Cluster.ClusterID, p.Cluster.MaxConnectedClusters),
		interval: p.Config.IdentityGCInterval, timeout: p.Config.IdentityHeartbeatTimeout, scarceFrom: scarceFrom,
	}
	grace := p.Config.IdentityGCInterval
	// Agents that make identities need the time to publish which they use.
	if c.mayBeScarce = p.Cluster.OperatorIdentities() && p.Cluster.IdentityManagementMode != "both"; c.mayBeScarce {
		grace = min(grace, scarcePause) // the policy has the rest
	}
	c.marks = reconcile.NewQueue(p.Reconcile, "mark", c.writeMark, reconcile.Workers(workers), reconcile.Backoff(time.Second, time.Minute), reconcile.HonorBackoff())
	c.sweep = sweep.New(p.Sweep, sweep.Spec[id, *ciliumio.Identity]{
		Rule: "collect", Interval: p.Config.IdentityGCInterval, Grace: grace,
		Rate: p.Budget.Limiter, Workers: workers,
		Scan: c.scan, Confirm: func(ctx context.Context) error { return c.refresh(ctx, 0) },
		Check: c.check, Delete: c.delete, Trigger: trigger, Ended: c.recordSweep, Namespace: namespaceOf, Few: c.fewWhileScarce,
	})
	return c
}

// fewWhileScarce is how many identities go of namespaces that have most of those that look unused: while numbers are scarce, all others wait for them. It is a hundredth of the
// range in a minute: more than a namespace is given meanwhile (ID-44), and few if it is the view that is wrong. Runs that fail are repeated sooner, and have none.
func (c *controller) fewWhileScarce() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.scarce.Load() || time.Since(c.few) < scarcePause {
		return 0
	}
	c.few = time.Now()
	return max(1, c.policy.own.Size()/100)
}

// run sweeps once all stores are synced. It watches the referrers, too: a reference between two scans counts, and the mark
// of an identity is removed as soon as it is referenced.
func (c *controller) run(ctx context.Context) (err error) {
	if c.store, err = c.Identities.Store(ctx); err != nil {
		return err
	}
	for _, r := range c.Referrers {
		if err := r.open(ctx); err != nil {
			return err
		}
	}
	close(c.ready)
	for _, r := range c.Referrers {
		c.Jobs.Add("watch-"+r.kind(), job.OneShot(func(ctx context.Context) error { return r.watch(ctx, c.markInUse) }))
	}
	if c.mayBeScarce && c.Sweep.Plan == nil { // a plan has no use for more runs
		c.Jobs.Add("scarce", job.Timer(c.runSoon, scarcePause/4))
	}
	return c.sweep.Run(ctx)
}

// runSoon has the next run begin as soon as a minute has passed since the last one, while numbers are scarce.
func (c *controller) runSoon(context.Context) error {
	if c.isScarce() {
		c.sweep.Kick()
	}
	return nil
}

// isScarce reports whether unused identities go sooner.
func (c *controller) isScarce() bool {
	if !c.mayBeScarce || !c.policy.isScarce(c.store.Len()) {
		return false
	}
	own := 0
	for i := range c.store.All() {
		if n, ok := identity.ParseNumber(i.Name); ok && c.policy.own.Contains(n) {
			own++
		}
	}
	return c.policy.isScarce(own)
}

// policyNow is the policy as of the last scan.
func (c *controller) policyNow() gcPolicy {
	if c.scarce.Load() {
		return c.policy.whileScarce()
	}
	return c.policy
}

// used reports whether an object in the stores references an identity.
func (c *controller) used(n identity.Number) bool {
	return slices.ContainsFunc(c.Referrers, func(r referrers) bool { return r.references(n) })
}

// complete fails if there are unreadable referrers.
func (c *controller) complete() error {
	var errs []error
	for _, r := range c.Referrers {
		errs = append(errs, r.complete())
	}
	return errors.Join(errs...)
}

// markInUse resets the time since which an identity is unused, and enqueues the removal of its mark. It does not block.
func (c *controller) markInUse(n identity.Number) {
	i, ok := c.store.Get(slim.Key{Name: n.String()})
	if !ok || !c.policy.own.Contains(n) {
		return
	}
	key := idOf(i)
	if _, seen := c.sweep.FirstSeen(key); seen {
		c.sweep.Reset(func(k id) bool { return k == key })
		c.mu.Lock()
		c.reused = append(c.reused, i.UID)
		c.mu.Unlock()
	}
	if i.Annotations.Has(annotation) {
		c.marks.Add(i.Name, trigger(i))
	}
}

// scan finds garbage among all identities, and enqueues those whose mark is to be written or removed.
func (c *controller) scan(context.Context) (found sweep.Found[id, *ciliumio.Identity], err error) {
	if err := c.complete(); err != nil {
		return found, err
	}
	now := c.startScan()
	c.scarce.Store(c.isScarce())
	s, next := c.policyNow().scan(c.store.All(), c.used, c.unusedSince, c.history, now)
	c.history, c.scanned, s.scarce = next, s.count, c.scarce.Load()
	c.report(s)
	if !c.mayWrite() {
		return sweep.Found[id, *ciliumio.Identity]{Total: s.Total}, nil
	}
	for _, i := range s.writes {
		c.marks.Add(i.Name, trigger(i))
	}
	return s.Found, nil
}

func (c *controller) startScan() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lastScan = c.Sweep.Plan.Now()
	c.history.update(c.marked, c.reused)
	c.marked, c.reused = nil, nil
	return c.lastScan
}

func (c *controller) unusedSince(key id) time.Time {
	first, _ := c.sweep.FirstSeen(key)
	return first
}

// mayWrite is false if the role is known to deny marks or deletes. Health shows the missing permission.
func (c *controller) mayWrite() bool {
	all := k8s.Ref{Resource: identities}
	return !c.Permissions.Denies("update", all) && !c.Permissions.Denies("delete", all)
}

// report sets the metrics, and logs the first identities of each defect.
func (c *controller) report(s scanResult) {
	c.Marks.Marked.Set(float64(s.marked))
	c.Marks.Contested.Set(float64(len(s.contested)))
	if len(s.misnamed) > 0 && len(c.reported.misnamed) == 0 {
		c.Log.Warn("ignoring CiliumIdentities whose names are no identity numbers",
			"identities", len(s.misnamed), "example", s.misnamed[0])
	}
	if s.foreign > 0 && c.reported.foreign == 0 {
		c.Log.Info("ignoring CiliumIdentities with numbers of other clusters",
			"identities", s.foreign, "from", c.policy.own.Min, "to", c.policy.own.Max)
	}
	if s.scarce && !c.reported.scarce {
		c.Log.Info("numbers for identities are scarce, those that nothing uses are deleted within minutes", "identities", s.Total, "from", c.policy.own.Min, "to", c.policy.own.Max)
	}
	if len(s.contested) > 0 && len(c.reported.contested) == 0 {
		c.Log.Warn("an agent keeps removing the mark of CiliumIdentities that no endpoint uses",
			"identities", len(s.contested), "example", s.contested[0])
	}
	c.reported = s
	c.reportIgnored()
}

// mostIgnored is how many namespaces are named in the log.
const mostIgnored = 20

// reportIgnored names in the log a namespace whose endpoints name more identities than count, once (ID-48).
func (c *controller) reportIgnored() {
	namespace, most := "", 0
	for _, r := range c.Referrers {
		if of, numbers := r.ignored(); numbers > most {
			namespace, most = of, numbers
		}
	}
	if namespace == "" || c.ignored[namespace] || len(c.ignored) == mostIgnored {
		return
	}
	c.ignored[namespace] = true
	c.Log.Warn("endpoints without a pod name more identities than count", "namespace", namespace, "ignored", most)
}

// maxAge is the maximum age of the stores at a delete.
const maxAge = time.Minute

// awaitFresh returns when the stores have all writes before the call.
func (c *controller) awaitFresh(ctx context.Context) error {
	errs := make([]error, len(c.Referrers))
	var all sync.WaitGroup
	for i, r := range c.Referrers {
		all.Go(func() { errs[i] = r.awaitFresh(ctx) })
	}
	err := c.Identities.WaitForFresh(ctx)
	all.Wait()
	return errors.Join(append(errs, err)...)
}

// refresh waits for fresh stores, unless they were fresh within a time.
func (c *controller) refresh(ctx context.Context, within time.Duration) error {
	c.refreshing.Lock()
	defer c.refreshing.Unlock()
	now := c.Sweep.Plan.Now()
	if !c.refreshed.IsZero() && now.Sub(c.refreshed) < within {
		return nil
	}
	if err := c.awaitFresh(ctx); err != nil {
		return err
	}
	c.refreshed = now
	return nil
}

// check decides again right before a delete, with stores refreshed if they are older than maxAge: the deletes of a sweep
// may take many minutes.
func (c *controller) check(ctx context.Context, i *ciliumio.Identity) (unused bool, err error) {
	if err := c.refresh(ctx, maxAge); err != nil {
		return false, err
	}
	if err := c.complete(); err != nil {
		return false, err
	}
	n, _ := identity.ParseNumber(i.Name)
	return !c.used(n), nil
}

// delete deletes the identity unless it was written since: an agent that uses it removes its mark.
func (c *controller) delete(ctx context.Context, i *ciliumio.Identity) (sweep.Outcome, error) {
	only := k8s.Preconditions{UID: i.UID.API(), ResourceVersion: i.ResourceVersion.String()}
	ref := k8s.Ref{Resource: identities, Name: i.Name}
	outcome, err := sweep.OutcomeOf(c.Client.Delete(ctx, ref, only), ref)
	if outcome == sweep.Changed {
		c.Log.Warn("keeping a CiliumIdentity that was written before its deletion", "identity", i.Name)
	}
	return outcome, err
}

// recordSweep sets the metrics of the original.
func (c *controller) recordSweep(r sweep.Result) {
	c.Metrics.CountRun(identitygc.InCRD, r.Err != nil, r.Took)
	if c.scanned >= 0 {
		deleted := r.Outcomes[sweep.Deleted] + r.Outcomes[sweep.Gone]
		c.Metrics.SetEntries(identitygc.InCRD, c.scanned-deleted, deleted)
	}
	c.scanned = -1
}

// namespaceOf is the namespace of the pods of an identity.
func namespaceOf(i *ciliumio.Identity) string { return i.SecurityLabels.Get(identity.NamespaceLabel) }

func trigger(i *ciliumio.Identity) k8s.Trigger {
	return k8s.Trigger{Kind: ciliumio.Identities.Name(), Name: i.Name, ResourceVersion: i.ResourceVersion.String()}
}
