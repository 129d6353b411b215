// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package endpointslicesync

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/skep-operator/skep/resources/clustermesh"
	"github.com/skep-operator/skep/resources/k8s"
	"github.com/skep-operator/skep/resources/reconcile"
	"github.com/skep-operator/skep/resources/stream"
	"github.com/skep-operator/skep/resources/stream/slim"
	"github.com/skep-operator/skep/runtime/cell"
	"github.com/skep-operator/skep/runtime/job"
)

// controller writes the slices of each Service that participates.
type controller struct {
	params
	services *stream.Store[service]
	slices   *stream.Store[meshSlice]
	fresh    reconcile.Fresh // Services
	occupied reconcile.Occupied

	mu      sync.Mutex
	due     map[slim.Key]time.Time // when changes of a service are written
	paused  map[slim.Key]time.Time // until when no slices of a service are created, since others have the names of some
	desired map[slim.Key]counts
	left    int // endpoints of all Services
}

// counts is what a Service is to have.
type counts struct{ slices, endpoints, left int }

type params struct {
	cell.In

	Config   Config
	Deps     reconcile.Deps
	Mesh     *clustermesh.Mesh
	Services stream.Resource[service]
	Slices   stream.Resource[meshSlice]
	Client   k8s.Client
	Metrics  *sliceMetrics
}

func newController(p params) *controller {
	return &controller{params: p, due: map[slim.Key]time.Time{}, paused: map[slim.Key]time.Time{}, desired: map[slim.Key]counts{}}
}

// QueueOptions implements the options of the work queue.
func (c *controller) QueueOptions() []reconcile.Option {
	return []reconcile.Option{reconcile.Workers(c.Config.ClusterMeshConcurrentServiceEndpointSyncs), reconcile.Backoff(time.Second, time.Minute)}
}

// Open is called before anything is watched.
func (c *controller) Open(ctx context.Context) (err error) {
	if c.services, err = c.Services.Store(ctx); err != nil {
		return err
	}
	c.slices, err = c.Slices.Store(ctx)
	return err
}

// sliceChanged is the Service of a slice. A slice that was deleted is not created again at once: the garbage collector may
// have deleted it with its Service, and may be faster than the stream of Services.
func (c *controller) sliceChanged(ch stream.Change[meshSlice]) []slim.Key {
	c.Metrics.Slices.Set(float64(c.slices.Len()))
	key := serviceOf(ch.Object)
	if ch.Kind == stream.Delete {
		c.delay(key)
	}
	return []slim.Key{key}
}

// followClusters reconciles what changes in remote clusters.
func (c *controller) followClusters(ctx context.Context, enqueue reconcile.Enqueue) {
	stop := c.Mesh.Services.Observe(func(ch clustermesh.Change) {
		trigger := k8s.Trigger{Kind: "RemoteCluster", Name: ch.Cluster}
		if ch.Key == (slim.Key{}) {
			c.enqueueAll(enqueue, trigger)
			return
		}
		c.delay(ch.Key)
		enqueue(ch.Key, trigger)
	})
	defer stop()
	for { // what was read before, and clusters that are gone
		if _, known := c.Mesh.Clusters(); known {
			break
		}
		if !job.Sleep(ctx, 50*time.Millisecond) {
			return
		}
	}
	c.enqueueAll(enqueue)
	<-ctx.Done()
}

// confirmServices has slices be deleted once Services are seen as they were when the term began.
func (c *controller) confirmServices(ctx context.Context, enqueue reconcile.Enqueue) {
	if c.fresh.Await(ctx, c.Deps, c.Services) {
		c.enqueueAll(enqueue)
	}
}

// enqueueAll reconciles all Services that have slices or participate.
func (c *controller) enqueueAll(enqueue reconcile.Enqueue, triggers ...k8s.Trigger) {
	for s := range c.services.All() {
		if s.participates() {
			enqueue(s.Key(), triggers...)
		}
	}
	for slice := range c.slices.All() {
		enqueue(serviceOf(slice), triggers...)
	}
}

// delay has the changes of a service gathered from the first one on.
func (c *controller) delay(key slim.Key) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, waits := c.due[key]; !waits {
		c.due[key] = time.Now().Add(c.Config.ClusterMeshEndpointUpdatesBatchPeriod)
	}
}

// remainingDelay is how long the changes of a service are still gathered.
func (c *controller) remainingDelay(key slim.Key) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	rest := time.Until(c.due[key])
	if rest <= 0 {
		delete(c.due, key)
	}
	return rest
}

// Why nothing is written.
const (
	isGathering = "none yet: changes of the remote service, or of slices that were deleted, are gathered"
	isStale     = "none yet: the Service may have changed while another replica led"
	isHidden    = "none: the Service cannot be decoded, or is too large, and its slices stay"
	isCut       = "none of a remote cluster: there is no memory for one of its slices, and all of them stay"
)

// Reconcile brings the slices of a Service to their desired state, those of each remote cluster that is known.
func (c *controller) Reconcile(ctx context.Context, key slim.Key) (reconcile.Result, error) {
	if rest := c.remainingDelay(key); rest > 0 {
		return reconcile.Result{RequeueAfter: rest, Reason: isGathering}, nil
	}
	s, exists := c.services.Get(key)
	if c.services.Hides(key) || exists && s.IsCut() {
		return reconcile.Result{Reason: isHidden}, nil
	}
	if exists && (!s.DeletionTimestamp.IsZero() || !s.participates()) {
		s = nil
	}
	existing := map[string][]*meshSlice{}
	for slice := range stream.ByIndex(c.slices, byService, key) {
		if cluster := slice.Labels.Get(clusterLabel); cluster != "" {
			existing[cluster] = append(existing[cluster], slice)
		}
	}
	total, occupied := plan{}, c.occupied.Others(key)
	for _, cluster := range c.clusters(s, existing) {
		backends, known := c.backends(s, cluster, key)
		if !known {
			total.slices += len(existing[cluster])
			continue
		}
		total.append(planFor(s, cluster, backends, existing[cluster], bounds{c.Config.ClusterMeshEndpointsPerSlice, c.Config.ClusterMeshMaxSlicesPerService, occupied}))
	}
	c.count(key, total)
	var result reconcile.Result
	if total.isCut {
		result.Reason = isCut
	}
	if !c.fresh.Is() && total.hold() {
		result.Reason = isStale
	}
	c.occupied.Keep(key, func(name string) bool { return total.slices > 0 && !shows(existing, name) })
	if result.RequeueAfter = c.remainingPause(key); result.RequeueAfter > 0 {
		total.create = nil
	}
	err := c.afterOccupied(key, c.write(ctx, total))
	c.Metrics.Syncs.WithLabelValues(map[bool]string{true: "success", false: "error"}[err == nil]).Inc()
	return result, err
}

// clusters are those that a Service has slices of, or may need some of.
func (c *controller) clusters(s *service, existing map[string][]*meshSlice) []string {
	names := map[string]bool{}
	for name := range existing {
		names[name] = true
	}
	if s != nil {
		configured, _ := c.Mesh.Clusters()
		for _, name := range configured {
			names[name] = true
		}
	}
	return slices.Sorted(maps.Keys(names))
}

// backends returns the service in a remote cluster, nil if it has none there. Nothing is decided about a cluster that has
// not been read.
func (c *controller) backends(s *service, cluster string, key slim.Key) (backends *clustermesh.Service, known bool) {
	if s == nil {
		return nil, true
	}
	configured, known := c.Mesh.Clusters()
	if !known || !slices.Contains(configured, cluster) {
		return nil, known
	}
	backends, state := c.Mesh.Services.Get(cluster, key)
	if backends != nil && !backends.Shared {
		backends = nil
	}
	return backends, state != clustermesh.Unknown
}

// append adds the plan of another cluster.
func (p *plan) append(other plan) {
	p.create, p.update, p.remove = append(p.create, other.create...), append(p.update, other.update...), append(p.remove, other.remove...)
	p.slices, p.endpoints = p.slices+other.slices, p.endpoints+other.endpoints
	p.added, p.removed, p.left = p.added+other.added, p.removed+other.removed, p.left+other.left
	p.isCut = p.isCut || other.isCut
}

// hold leaves out what would take slices away: deletes, and owners that are other ones. It reports whether that was something.
func (p *plan) hold() (held bool) {
	changes := len(p.update)
	p.update = slices.DeleteFunc(p.update, func(c change) bool { return !sameOwner(c.is.Owners, c.want.OwnerReferences[0]) })
	held = len(p.remove) > 0 || len(p.update) < changes
	p.remove = nil
	return held
}

// count records what a Service is to have.
func (c *controller) count(key slim.Key, p plan) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now, before := counts{p.slices, p.endpoints, p.left}, c.desired[key]
	c.Metrics.DesiredSlices.Add(float64(now.slices - before.slices))
	c.Metrics.DesiredEndpoints.Add(float64(now.endpoints - before.endpoints))
	if c.desired[key] = now; now == (counts{}) {
		delete(c.desired, key)
	}
	if now.left != before.left {
		c.reportLeftOut(now.left - before.left)
	}
}

// reportLeftOut reports that endpoints more, or fewer, have no slice. The caller has the lock.
func (c *controller) reportLeftOut(more int) {
	part, before := c.Deps.Health.Child("left-out"), c.left
	c.left += more
	c.Metrics.LeftOut.Set(float64(c.left))
	if c.left == 0 {
		part.OK("")
		return
	}
	left := map[string]int{}
	for key, n := range c.desired {
		if n.left > 0 {
			left[key.String()] = n.left
		}
	}
	first := slices.MinFunc(slices.Collect(maps.Keys(left)), cmp.Compare)
	part.Degraded("endpoints of remote clusters are left out", fmt.Errorf("%d endpoints of %d Services, beginning with %d of %s, as there are too many EndpointSlices (--clustermesh-max-slices-per-service)", c.left, len(left), left[first], first))
	if before == 0 {
		c.Deps.Log.Warn("endpoints of remote clusters are left out, as a Service has too many EndpointSlices", "service", first, "endpoints", left[first], "most", c.Config.ClusterMeshMaxSlicesPerService)
	}
}
