// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package endpointslice

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"golang.org/x/time/rate"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/skep-operator/skep/resources/api/v2alpha1"
	"github.com/skep-operator/skep/resources/k8s"
	"github.com/skep-operator/skep/resources/reconcile"
	"github.com/skep-operator/skep/resources/stream"
	"github.com/skep-operator/skep/resources/stream/ciliumio"
	"github.com/skep-operator/skep/resources/stream/slim"
	"github.com/skep-operator/skep/runtime/cell"
	"github.com/skep-operator/skep/runtime/job"
)

// writers is how many slices are written at once: so many that the limiter decides
// where an answer takes 160 ms. An API server that needs longer is not made faster by
// more of them (docs/performance.md).
const writers = 8

// source is where endpoints come from.
type source interface {
	// follow calls see with each endpoint that may have changed, and synced once
	// when all have been that were there when it began. It ends with ctx.
	follow(ctx context.Context, see func(slim.Key, k8s.Trigger), synced func()) error
	// says tells what a slice should say of an endpoint, false if nothing. last is
	// the identity that it was said to have last, for a source that does not know
	// it now.
	says(key slim.Key, last int64) (v2alpha1.CoreCiliumEndpoint, bool)
	// confirm returns when the source knows all endpoints that there were when it
	// was called.
	confirm(ctx context.Context) error
}

// keeper feeds the plan and carries out its orders.
type keeper struct {
	params
	loop    *reconcile.Loop[string]
	limits  limits
	limiter *rate.Limiter

	slices    milestone // all slices have been seen
	endpoints milestone // all endpoints have been seen
	wake      chan struct{}

	mu    sync.Mutex // guards what follows; never held during a request
	plan  *plan
	batch *batch
	since map[string]time.Time // of slices: the first change that is not written
}

type params struct {
	cell.In

	Config   Config
	Source   source
	Server   server
	Slices   stream.Resource[ciliumio.EndpointSlice]
	Nodes    stream.Resource[ciliumio.Node]
	Handover k8s.Handover
	Scope    reconcile.Scope
	Metrics  *sliceMetrics
	Log      *slog.Logger
}

func newKeeper(p params) (*keeper, error) {
	l, err := p.Config.limits()
	if err != nil {
		return nil, err
	}
	k := &keeper{
		params: p, limits: l, limiter: rate.NewLimiter(l.at(0)),
		slices: newMilestone(), endpoints: newMilestone(), wake: make(chan struct{}, 1),
		plan: newPlan(p.Config.CESMaxCiliumEndpointsPerCES, p.Config.byIdentity(), randomName), batch: newBatch(),
		since: map[string]time.Time{},
	}
	k.loop = reconcile.New(p.Scope, "gather", k.write, reconcile.Workers(writers), reconcile.Pauses(100*time.Millisecond, 30*time.Second))
	return k, nil
}

func (k *keeper) writeJob() job.Job { return k.loop.Job() }
func (k *keeper) batchJob() job.Job { return job.OneShot(k.releaseBatches) }
func (k *keeper) auditJob() job.Job { return job.Timer(k.audit, auditInterval, job.StartLater()) }
func (k *keeper) slicesJob() job.Job {
	return job.OneShot(k.followSlices, job.Retry(time.Second, time.Minute))
}
func (k *keeper) endpointsJob() job.Job {
	return job.OneShot(k.followEndpoints, job.Retry(time.Second, time.Minute))
}
func (k *keeper) beginJob() job.Job { return job.OneShot(k.begin, job.Retry(time.Second, time.Minute)) }
func (k *keeper) nodesJob() job.Job { return job.OneShot(k.followNodes) }

// milestone is a channel that is closed once.
type milestone struct {
	reached chan struct{}
	reach   func()
}

func newMilestone() milestone {
	reached := make(chan struct{})
	return milestone{reached, sync.OnceFunc(func() { close(reached) })}
}

// followSlices takes note of slices as the server has them: what leaders before
// this one wrote first.
func (k *keeper) followSlices(ctx context.Context) error {
	if err := stream.CatchUp(ctx, k.Slices, k.Handover, resource); err != nil {
		return err
	}
	for e := range k.Slices.Events(ctx, stream.Named("endpointslice")) {
		k.seeSlice(e)
		e.Done(nil)
	}
	return ctx.Err()
}

func (k *keeper) seeSlice(e stream.Event[ciliumio.EndpointSlice]) {
	if e.Kind == stream.Sync {
		k.slices.reach()
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if e.Kind == stream.Delete {
		k.plan.gone(e.Key.Name, e.Object.UID)
	} else {
		k.plan.show(e.Key.Name, shownOf(e.Object))
	}
	k.noteTouched(k8s.Trigger{Kind: "CiliumEndpointSlice", Name: e.Key.Name, ResourceVersion: e.Object.ResourceVersion.String()})
}

// auditInterval is how often it is made sure that slices are still there.
const auditInterval = time.Minute

// audit makes sure that slices are still there, in the view of them. That costs no
// request.
func (k *keeper) audit(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	store, err := k.Slices.Store(ctx)
	if err != nil {
		return err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.plan.audit(func(name string, asOf slim.Revision) bool {
		_, there := store.Get(slim.Key{Name: name})
		return !there && store.Revision() >= asOf
	})
	k.noteTouched(k8s.Trigger{Kind: "CiliumEndpointSlice"})
	return nil
}

func (k *keeper) followEndpoints(ctx context.Context) error {
	return k.Source.follow(ctx, k.see, k.endpoints.reach)
}

// see takes note of an endpoint as its source tells it now.
func (k *keeper) see(key slim.Key, why k8s.Trigger) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if e, ok := k.Source.says(key, k.plan.lastIdentity(key)); ok {
		k.plan.upsert(key, ciliumio.SliceEndpointOf(&e), size(&e))
	} else {
		k.plan.remove(key)
	}
	k.noteTouched(why)
}

// begin gives endpoints their places when all slices and endpoints have been
// seen. What would be removed from slices waits until it is sure that endpoints are
// not only not seen yet: leaders before this one may have known more.
func (k *keeper) begin(ctx context.Context) error {
	for _, m := range []milestone{k.slices, k.endpoints} {
		select {
		case <-m.reached:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	k.placeAll()
	if err := k.Source.confirm(ctx); err != nil {
		return err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.plan.makeSure()
	k.hurry()
	return nil
}

func (k *keeper) placeAll() {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.plan.begun {
		return
	}
	k.plan.begin(k.Source.says)
	k.Log.Info("all endpoints and slices are known", "endpoints", k.plan.endpoints.Len(), "slices", len(k.plan.slices))
	k.hurry()
}

// hurry has slices looked at, at once, that the plan has touched. The caller has
// the lock.
func (k *keeper) hurry() {
	now := time.Now()
	for _, s := range k.plan.take() {
		k.batch.add(s.name, now, true, k8s.Trigger{Kind: "CiliumEndpointSlice", Name: s.name, ResourceVersion: s.shown.revision.String()})
	}
	k.wakeUp()
}

// noteTouched has slices written that the plan has touched. The caller has the
// lock.
func (k *keeper) noteTouched(why k8s.Trigger) {
	touched := k.plan.take()
	if len(touched) == 0 {
		return
	}
	now := time.Now()
	for _, s := range touched {
		if _, waits := k.since[s.name]; !waits {
			k.since[s.name] = now
		}
		k.batch.add(s.name, now, k.plan.full(s), why)
	}
	k.wakeUp()
}

func (k *keeper) wakeUp() {
	select {
	case k.wake <- struct{}{}:
	default:
	}
}

// releaseBatches hands slices to the writers when it is time.
func (k *keeper) releaseBatches(ctx context.Context) error {
	for {
		k.mu.Lock()
		due, next := k.batch.take(time.Now())
		k.mu.Unlock()
		for _, w := range due {
			k.loop.Add(w.name, w.triggers...)
		}
		var timer <-chan time.Time
		if next > 0 {
			timer = time.After(next)
		}
		select {
		case <-timer:
		case <-k.wake:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// conflicts is how often a slice that somebody else has written is written anew
// at once.
const conflicts = 5

// write brings a slice to what it should say. What it should say is asked for
// again when the limiter lets it pass: much may have happened meanwhile.
func (k *keeper) write(ctx context.Context, name string) (err error) {
	for range conflicts {
		if o, _ := k.order(name, false); o.verb == nothing {
			return nil
		}
		if err := k.limiter.Wait(ctx); err != nil {
			return err
		}
		o, since := k.order(name, true)
		if o.verb == nothing {
			return nil
		}
		if err = k.carryOut(ctx, o, since); !outdated(err) {
			return err
		}
		if err := k.readAnew(ctx, name); err != nil {
			return err
		}
	}
	return err
}

// order asks the plan what is to be written of a slice. From then on it is being
// written, if now is set.
func (k *keeper) order(name string, now bool) (o order, since time.Time) {
	k.mu.Lock()
	defer k.mu.Unlock()
	o = k.plan.order(name, k.Source.says)
	if !now && o.verb != nothing {
		return o, since
	}
	since = k.since[name]
	delete(k.since, name)
	k.batch.drop(name)
	if o.slice != nil {
		k.plan.begins(o)
	}
	return o, since
}

func (k *keeper) carryOut(ctx context.Context, o order, since time.Time) error {
	var uid slim.UID
	var revision slim.Revision
	var err error
	switch o.verb {
	case create:
		uid, revision, err = k.Server.create(ctx, o.object)
	case update:
		uid, revision, err = k.Server.update(ctx, o.object)
	case remove:
		if err = k.Server.remove(ctx, o.slice.name, o.upon); apierrors.IsNotFound(err) {
			err = nil
		}
	}
	k.Metrics.wrote(o, since, err)
	k.mu.Lock()
	defer k.mu.Unlock()
	if err != nil {
		k.plan.failed(o, refused(err))
		if was, waits := k.since[o.slice.name]; !since.IsZero() && (!waits || since.Before(was)) {
			k.since[o.slice.name] = since
		}
		return err
	}
	k.plan.wrote(o, uid, revision)
	k.noteTouched(k8s.Trigger{Kind: "CiliumEndpointSlice", Name: o.slice.name, ResourceVersion: revision.String()})
	return nil
}

// outdated reports whether a write was refused since the slice is not what was
// known of it.
func outdated(err error) bool {
	return apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) || apierrors.IsNotFound(err)
}

// readAnew takes note of a slice as the server has it.
func (k *keeper) readAnew(ctx context.Context, name string) error {
	now, err := k.Server.get(ctx, name)
	if err != nil && !apierrors.IsNotFound(err) {
		return err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.plan.read(name, now)
	k.noteTouched(k8s.Trigger{Kind: "CiliumEndpointSlice", Name: name, ResourceVersion: now.revision.String()})
	return nil
}

// followNodes follows the number of nodes, on which the rate of writes depends.
func (k *keeper) followNodes(ctx context.Context) error {
	store, err := k.Nodes.Store(ctx)
	if err != nil {
		return err
	}
	last := -1
	for batch := range k.Nodes.Batches(ctx, 256, 0, stream.Named("endpointslice")) {
		batch.Done(nil)
		if n := store.Len(); n != last {
			limit, burst := k.limits.at(n)
			k.limiter.SetLimit(limit)
			k.limiter.SetBurst(burst)
			last = n
		}
	}
	return ctx.Err()
}
