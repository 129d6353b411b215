// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package identitygc

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/skep-operator/skep/resources/cluster"
	"github.com/skep-operator/skep/resources/domain/identity"
	"github.com/skep-operator/skep/resources/k8s"
	"github.com/skep-operator/skep/resources/reconcile"
	"github.com/skep-operator/skep/resources/stream"
	"github.com/skep-operator/skep/resources/stream/ciliumio"
	"github.com/skep-operator/skep/resources/stream/slim"
	"github.com/skep-operator/skep/resources/sweep"
	"github.com/skep-operator/skep/runtime/cell"
	"github.com/skep-operator/skep/runtime/job"
)

// collector marks CiliumIdentities that nobody uses, and deletes them.
type collector struct {
	params
	terms terms
	sweep *sweep.Sweep[id, *ciliumio.Identity]
	marks *reconcile.Loop[string]
	ready chan struct{} // closed when there are views
	store *stream.Store[ciliumio.Identity]

	mu      sync.Mutex // guards the following; never held during a request
	began   time.Time  // when identities were looked at last
	put     []slim.UID // marked since then
	vouched []slim.UID // in use since then

	upToDate  sync.Mutex // guards the following, during requests too
	confirmed time.Time  // when the views were up to date last

	// Of the sweep alone:
	history history
	told    survey // by the last look
	seen    int    // by the sweep that runs, -1: it has not looked
}

type params struct {
	cell.In

	Config      Config
	Cluster     cluster.Config
	Budget      budget
	Identities  stream.Resource[ciliumio.Identity]
	Users       []users `group:"users of identities"`
	Client      k8s.Client
	Permissions *k8s.Permissions
	Sweep       sweep.Scope
	Reconcile   reconcile.Scope
	Jobs        job.Group
	Metrics     *gcMetrics
	Marks       *markMetrics
	Log         *slog.Logger
}

// workers is how many deletes, and how many marks, are on their way at once.
const workers = 8

func newCollector(p params) *collector {
	c := &collector{params: p, ready: make(chan struct{}), history: history{}, seen: -1}
	c.terms = terms{
		own:      identity.RangeOf(p.Cluster.ClusterID, p.Cluster.MaxConnectedClusters),
		interval: p.Config.IdentityGCInterval, timeout: p.Config.IdentityHeartbeatTimeout,
	}
	c.marks = reconcile.New(p.Reconcile, "mark", c.write, reconcile.Workers(workers), reconcile.Pauses(time.Second, time.Minute), reconcile.Patient())
	c.sweep = sweep.New(p.Sweep, sweep.Spec[id, *ciliumio.Identity]{
		Rule: "collect", Interval: p.Config.IdentityGCInterval, Grace: p.Config.IdentityGCInterval,
		Rate: p.Budget.Limiter, Workers: workers,
		Scan: c.scan, Confirm: func(ctx context.Context) error { return c.bringUpToDate(ctx, 0) },
		Check: c.check, Delete: c.delete, Trigger: trigger, Ended: c.ended,
	})
	return c
}

func (c *collector) sweepJob() job.Job { return job.OneShot(c.run) }
func (c *collector) markJob() job.Job  { return job.OneShot(c.runMarks) }

// run looks at identities when all views are complete. Who uses them is watched,
// too: a use between two looks counts, and a mark is taken off as soon as it is
// wrong.
func (c *collector) run(ctx context.Context) (err error) {
	if c.store, err = c.Identities.Store(ctx); err != nil {
		return err
	}
	for _, u := range c.Users {
		if err := u.open(ctx); err != nil {
			return err
		}
	}
	close(c.ready)
	for _, u := range c.Users {
		c.Jobs.Add("watch-"+u.kind(), job.OneShot(func(ctx context.Context) error { return u.watch(ctx, c.vouch) }))
	}
	defer c.Marks.Marked.Set(0)
	defer c.Marks.Contested.Set(0)
	return c.sweep.Run(ctx)
}

func (c *collector) runMarks(ctx context.Context) error {
	select {
	case <-c.ready:
		return c.marks.Run(ctx)
	case <-ctx.Done():
		return ctx.Err()
	}
}

// used reports whether anybody uses an identity, as the views have it now.
func (c *collector) used(n identity.Number) bool {
	return slices.ContainsFunc(c.Users, func(u users) bool { return u.use(n) })
}

// whole fails if there are users that cannot be read.
func (c *collector) whole() error {
	var errs []error
	for _, u := range c.Users {
		errs = append(errs, u.whole())
	}
	return errors.Join(errs...)
}

// vouch has the disuse of an identity begin anew, and its mark taken off. It does
// not block.
func (c *collector) vouch(n identity.Number) {
	i, ok := c.store.Get(slim.Key{Name: n.String()})
	if !ok || !c.terms.own.Contains(n) {
		return
	}
	key := idOf(i)
	if _, seen := c.sweep.Since(key); seen {
		c.sweep.Forget(func(k id) bool { return k == key })
		c.mu.Lock()
		c.vouched = append(c.vouched, i.UID)
		c.mu.Unlock()
	}
	if i.Annotations.Has(annotation) {
		c.marks.Add(i.Name, trigger(i))
	}
}

// scan looks at all identities, and has those marked and unmarked that should be.
func (c *collector) scan(context.Context) (found sweep.Found[id, *ciliumio.Identity], err error) {
	if err := c.whole(); err != nil {
		return found, err
	}
	now := c.beginLook()
	s, next := c.terms.survey(c.store.All(), c.used, c.since, c.history, now)
	c.history, c.seen = next, s.all
	c.tell(s)
	if !c.mayWrite() {
		return sweep.Found[id, *ciliumio.Identity]{Total: s.Total}, nil
	}
	for _, i := range s.writes {
		c.marks.Add(i.Name, trigger(i))
	}
	return s.Found, nil
}

func (c *collector) beginLook() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.began = c.Sweep.Plan.Now()
	c.history.update(c.put, c.vouched)
	c.put, c.vouched = nil, nil
	return c.began
}

func (c *collector) since(key id) time.Time {
	first, _ := c.sweep.Since(key)
	return first
}

// mayWrite is false if it is known that marks or deletes would be refused, each of
// them. Health says which permission is missing.
func (c *collector) mayWrite() bool {
	all := k8s.Ref{Resource: identities}
	return !c.Permissions.Denies("update", all) && !c.Permissions.Denies("delete", all)
}

// tell reports what is odd, in the log when it begins.
func (c *collector) tell(s survey) {
	c.Marks.Marked.Set(float64(s.marked))
	c.Marks.Contested.Set(float64(len(s.contested)))
	if len(s.odd) > 0 && len(c.told.odd) == 0 {
		c.Log.Warn("CiliumIdentities have names that are no numbers of identities; they are left alone",
			"identities", len(s.odd), "one of them", s.odd[0])
	}
	if s.foreign > 0 && c.told.foreign == 0 {
		c.Log.Info("CiliumIdentities have numbers of other clusters; they are left alone",
			"identities", s.foreign, "from", c.terms.own.Min, "to", c.terms.own.Max)
	}
	if len(s.contested) > 0 && len(c.told.contested) == 0 {
		c.Log.Warn("No endpoint uses these CiliumIdentities, and yet their mark is taken off again and again: an agent holds on to them; restarting it helps",
			"identities", len(s.contested), "one of them", s.contested[0])
	}
	c.told = s
}

// errChanged leaves an identity as it is.
var errChanged = errors.New("it is not any more what was judged")

// write marks an identity or takes its mark off, whatever it should be by now.
func (c *collector) write(ctx context.Context, name string) error {
	n, _ := identity.ParseNumber(name)
	i, ok := c.store.Get(slim.Key{Name: name})
	if !ok || !c.terms.own.Contains(n) || !c.mayWrite() {
		return nil
	}
	var edit func(*unstructured.Unstructured) error
	switch c.terms.judge(i, c.used(n), c.since(idOf(i)), c.Sweep.Plan.Now()) {
	case mark:
		edit = c.mark(i)
	case unmark:
		edit = func(u *unstructured.Unstructured) error { return takeOff(u, i) }
	default:
		return nil
	}
	stored, written, err := c.Client.Modify(ctx, k8s.Ref{Resource: identities, Name: name}, edit)
	if written && stored.GetAnnotations()[annotation] != "" {
		c.mu.Lock()
		c.put = append(c.put, i.UID)
		c.mu.Unlock()
	}
	if errors.Is(err, errChanged) || apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil // the next look will see
	}
	return err
}

// mark marks an identity that is as it was judged, with the time of the look that
// found that nobody uses it.
func (c *collector) mark(i *ciliumio.Identity) func(*unstructured.Unstructured) error {
	c.mu.Lock()
	at := c.began.Format(time.RFC3339Nano)
	c.mu.Unlock()
	return func(u *unstructured.Unstructured) error {
		if u.GetUID() != i.UID.API() || u.GetResourceVersion() != i.ResourceVersion.String() {
			return errChanged
		}
		return unstructured.SetNestedField(u.Object, at, "metadata", "annotations", annotation)
	}
}

// takeOff takes the mark off, whatever else was written.
func takeOff(u *unstructured.Unstructured, i *ciliumio.Identity) error {
	if u.GetUID() != i.UID.API() {
		return errChanged
	}
	unstructured.RemoveNestedField(u.Object, "metadata", "annotations", annotation)
	if len(u.GetAnnotations()) == 0 {
		unstructured.RemoveNestedField(u.Object, "metadata", "annotations")
	}
	return nil
}

// fresh is how old the views may be that a delete relies upon.
const fresh = time.Minute

// confirm returns when the views show all that was written before the call.
func (c *collector) confirm(ctx context.Context) error {
	errs := make([]error, len(c.Users))
	var all sync.WaitGroup
	for i, u := range c.Users {
		all.Go(func() { errs[i] = u.confirm(ctx) })
	}
	err := c.Identities.Confirm(ctx)
	all.Wait()
	return errors.Join(append(errs, err)...)
}

// bringUpToDate confirms the views, if that was not done within a time.
func (c *collector) bringUpToDate(ctx context.Context, within time.Duration) error {
	c.upToDate.Lock()
	defer c.upToDate.Unlock()
	now := c.Sweep.Plan.Now()
	if !c.confirmed.IsZero() && now.Sub(c.confirmed) < within {
		return nil
	}
	if err := c.confirm(ctx); err != nil {
		return err
	}
	c.confirmed = now
	return nil
}

// check looks at the views right before a delete, again up to date if the last time
// is long ago: the deletes of a sweep may take many minutes.
func (c *collector) check(ctx context.Context, i *ciliumio.Identity) (unused bool, err error) {
	if err := c.bringUpToDate(ctx, fresh); err != nil {
		return false, err
	}
	if err := c.whole(); err != nil {
		return false, err
	}
	n, _ := identity.ParseNumber(i.Name)
	return !c.used(n), nil
}

// delete deletes the identity as it was judged: an agent that takes it into use
// takes its mark off.
func (c *collector) delete(ctx context.Context, i *ciliumio.Identity) (sweep.Outcome, error) {
	only := k8s.Preconditions{UID: i.UID.API(), ResourceVersion: i.ResourceVersion.String()}
	outcome, err := sweep.OutcomeOf(c.Client.Delete(ctx, k8s.Ref{Resource: identities, Name: i.Name}, only))
	if outcome == sweep.Changed {
		c.Log.Warn("A CiliumIdentity was written while it was about to be deleted; it stays", "identity", i.Name)
	}
	return outcome, err
}

// ended counts a sweep.
func (c *collector) ended(r sweep.Result) {
	c.Metrics.ran(inCRD, r.Err != nil, r.Took)
	if c.seen >= 0 {
		deleted := r.Outcomes[sweep.Deleted] + r.Outcomes[sweep.Gone]
		c.Metrics.entries(inCRD, c.seen-deleted, deleted)
	}
	c.seen = -1
}

func trigger(i *ciliumio.Identity) k8s.Trigger {
	return k8s.Trigger{Kind: "CiliumIdentity", Name: i.Name, ResourceVersion: i.ResourceVersion.String()}
}
