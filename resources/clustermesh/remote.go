// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package clustermesh

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/skep-operator/skep/resources/kvstore"
	"github.com/skep-operator/skep/resources/reconcile"
	"github.com/skep-operator/skep/runtime/health"
	"github.com/skep-operator/skep/runtime/job"
)

// remote is a remote cluster: its connection, and what is known of it. A connection is replaced when its file changes;
// what was read stays.
type remote struct {
	name   string
	mesh   *Mesh
	health health.Reporter
	file   configFile
	stop   func() // ends the connection and waits for it
	isOver bool   // values are left out; for the monitor alone

	mu         sync.Mutex
	status     remoteStatus
	endSession context.CancelFunc // has the cluster read again
}

// remoteStatus is the state of a remote cluster, for its report.
type remoteStatus struct {
	began       time.Time // of the connection's first attempt
	etcd        kvstore.Status
	config      *clusterConfig // nil until it was read and accepted
	problem     error          // that keeps the cluster from being read
	unreachable time.Time      // since when; zero while it is reachable
	expired     bool           // what was known of it is forgotten
	revocations int            // how often that happened
	failures    int
	lastFailure time.Time
	late        bool // it was reported that it is not read in time
}

// run keeps the connection until ctx ends.
func (r *remote) run(ctx context.Context) {
	etcd, err := kvstore.NewRemote(r.file.path, r.deps(), r.mesh.Client)
	if err != nil {
		r.setProblem(err)
		return
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var running sync.WaitGroup
	defer running.Wait()
	r.mesh.guard(&running, cancel, func() { _ = etcd.Run(ctx) })
	r.mesh.guard(&running, cancel, func() { r.monitor(ctx, etcd) })
	changes, first := 0, r.mesh.timing.sessionPause // sessions in a row that the cluster ended
	began := time.Now()                             // after the pause of the last of them
	for ctx.Err() == nil {
		ended := r.runSession(ctx, etcd)
		if time.Since(began) > changesPause(first, mostChanges) {
			changes = 0
		}
		pause := first
		if ended {
			changes++
			pause = changesPause(first, changes)
		}
		if ended && changes > fewChanges {
			r.setProblem(fmt.Errorf("its configuration, or all of its etcd, changes again and again, and it is read again in %s", pause))
		}
		job.Sleep(ctx, pause)
		if ended {
			began = time.Now()
		}
	}
}

const (
	// fewChanges of a cluster in a row may be an administrator's: more are reported.
	fewChanges = 3
	// mostChanges are those after which the pause gets no longer: some two minutes.
	mostChanges = 8
)

// changesPause is how long a cluster is not read after so many changes of its configuration or data in a row: all is read again after each.
func changesPause(first time.Duration, changes int) time.Duration {
	return first << max(0, min(changes, mostChanges)-1)
}

func (r *remote) deps() reconcile.Deps {
	d := r.mesh.Deps
	d.Log, d.Health = d.Log.With("cluster", r.name), r.health
	return d
}

// runSession reads the cluster until the connection ends, its configuration changes, or its data are replaced. It reports whether the cluster was read,
// and has ended that: by neither the connection nor ours.
func (r *remote) runSession(outer context.Context, etcd *kvstore.Remote) (byCluster bool) {
	ctx, cancel := context.WithCancel(outer)
	var ours atomic.Bool
	r.mu.Lock()
	r.endSession = func() {
		ours.Store(true)
		cancel()
	}
	r.mu.Unlock()
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()

	var current *clusterConfig
	key := kvstore.Key(kvstore.ClusterConfigPrefix, r.name)
	for e := range etcd.Watch(ctx, key) {
		switch {
		case e.Kind == kvstore.Synced && current == nil && r.accepted() == nil:
			r.setProblem(fmt.Errorf("its etcd has no key %s: the cluster has not published its configuration", key))
		case e.Kind != kvstore.Upsert || e.Key != key:
		case current == nil:
			if !r.mesh.awaitRecord(ctx) {
				return false
			}
			if current = r.accept(e.Value); current == nil { // another cluster may give way
				job.Sleep(ctx, r.mesh.timing.refusedPause)
				return false
			}
			r.follow(ctx, cancel, &running, etcd, *current)
		default:
			if next, err := parseClusterConfig(e.Value, r.mesh.Cluster); err != nil || !next.sameReading(*current) {
				return true
			}
		}
	}
	return current != nil && outer.Err() == nil && !ours.Load()
}

// accept checks the configuration of the cluster. It returns nil if the cluster cannot be used.
func (r *remote) accept(value []byte) *clusterConfig {
	c, err := parseClusterConfig(value, r.mesh.Cluster)
	if err == nil {
		err = r.mesh.ids.claim(r.name, c.ID)
	}
	if err != nil {
		r.setProblem(err)
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.status.config, r.status.problem = &c, nil
	return &c
}

// readAgain begins another session.
func (r *remote) readAgain() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.endSession()
}

func (r *remote) accepted() *clusterConfig {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.status.config
}

func (r *remote) setProblem(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.status.problem == nil || r.status.problem.Error() != err.Error() {
		r.mesh.Log.Warn("remote cluster cannot be read", "cluster", r.name, "error", err)
	}
	r.status.problem = err
}

// follow reads what the duties need. The session ends with the first of the watches.
func (r *remote) follow(ctx context.Context, end context.CancelFunc, running *sync.WaitGroup, etcd *kvstore.Remote, c clusterConfig) {
	switch {
	case !r.mesh.Config.ClusterMeshEnableEndpointSync:
	case !c.Capabilities.hasServices():
		r.mesh.Log.Warn("remote cluster publishes EndpointSlices alone, and counts as one without services", "cluster", r.name)
		r.mesh.Services.setNone(r.name)
	default:
		r.mesh.guard(running, end, func() { followPrefix(ctx, r, etcd, c, kvstore.ServicesPrefix, r.mesh.Services) })
	}
	switch {
	case !r.mesh.Cluster.ClusterMeshEnableMCSAPI:
	case c.Capabilities.knowsServiceExports():
		r.mesh.guard(running, end, func() { followPrefix(ctx, r, etcd, c, kvstore.ServiceExportsPrefix, r.mesh.ServiceExports) })
	default:
		r.mesh.ServiceExports.setNone(r.name)
	}
	r.mu.Lock()
	r.status.expired = false
	r.mu.Unlock()
}

// followPrefix keeps objects as they are below a prefix, until ctx ends or the data are replaced.
func followPrefix[T any](ctx context.Context, r *remote, etcd *kvstore.Remote, c clusterConfig, prefix string, objects *Objects[T]) {
	if c.Capabilities.Cached {
		prefix = strings.Replace(prefix, "cilium/state/", "cilium/cache/", 1)
	}
	if !r.awaitMarker(ctx, etcd, c, prefix, objects.isComplete(r.name)) {
		return
	}
	for followFolder(ctx, r, etcd, kvstore.Folder(prefix, r.name), objects) {
	}
}

// followFolder keeps objects as they are in a folder, until ctx ends or the data are replaced. It reports whether the folder is to be
// listed again, as something was left out that fits by now.
func followFolder[T any](ctx context.Context, r *remote, etcd *kvstore.Remote, folder string, objects *Objects[T]) (again bool) {
	outer := ctx
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var relist *time.Timer
	objects.begin(r.name)
	bad := unusable{log: r.mesh.Log.With("cluster", r.name)}
	for e := range etcd.Watch(ctx, folder) {
		key, ok := objectKey(strings.TrimPrefix(e.Key, folder))
		switch {
		case e.Kind == kvstore.Synced:
			objects.complete(r.name)
			bad.sum(time.Now())
		case !ok:
			r.mesh.Log.Debug("ignoring key of a remote cluster that names no object", "cluster", r.name, "key", e.Key)
		case e.Kind == kvstore.Delete:
			objects.remove(r.name, key)
		default:
			if err := objects.set(r.name, key, e.Value); err != nil {
				bad.report(e.Key, err, time.Now())
			}
		}
		if relist == nil && objects.fitsMore(r.name) {
			relist = time.AfterFunc(r.mesh.timing.relist, cancel)
			defer relist.Stop()
		}
	}
	return ctx.Err() != nil && outer.Err() == nil
}

// awaitMarker waits until the cluster has marked a prefix as complete: always where its configuration says that it does,
// and for the time-out of the first reading after its data were replaced, as what is missing then may not be written yet.
func (r *remote) awaitMarker(ctx context.Context, etcd *kvstore.Remote, c clusterConfig, prefix string, wasRead bool) (marked bool) {
	waiting := ctx
	if !c.Capabilities.SyncedCanaries {
		if !wasRead {
			return true
		}
		var cancel context.CancelFunc
		waiting, cancel = context.WithTimeout(ctx, r.mesh.Config.ClusterMeshSyncTimeout)
		defer cancel()
	}
	marker := kvstore.Key(kvstore.SyncedPrefix, r.name, prefix)
	for e := range etcd.Watch(waiting, marker) {
		if e.Kind == kvstore.Upsert && e.Key == marker {
			return true
		}
	}
	return !c.Capabilities.SyncedCanaries && errors.Is(waiting.Err(), context.DeadlineExceeded) && ctx.Err() == nil
}

// isRead reports whether all that the duties need has been read.
func (r *remote) isRead() bool {
	m := r.mesh
	return (!m.Config.ClusterMeshEnableEndpointSync || m.Services.isComplete(r.name)) &&
		(!m.Cluster.ClusterMeshEnableMCSAPI || m.ServiceExports.isComplete(r.name))
}

// monitor follows the state of the connection.
func (r *remote) monitor(ctx context.Context, etcd *kvstore.Remote) {
	for {
		r.observe(etcd.Status(), time.Now())
		if !job.Sleep(ctx, r.mesh.timing.monitor) {
			return
		}
	}
}

// observe records the state of the connection, and reports that of the cluster.
func (r *remote) observe(etcd kvstore.Status, now time.Time) {
	r.mu.Lock()
	s := &r.status
	wasReachable := s.unreachable.IsZero()
	s.etcd = etcd
	switch {
	case etcd.Err == nil:
		s.unreachable = time.Time{}
	case wasReachable:
		s.unreachable = now
		if len(etcd.Endpoints) > 0 { // it was checked
			s.failures++
			s.lastFailure = now
		}
	}
	ttl := r.mesh.Config.ClusterMeshCacheTTL
	expires := ttl > 0 && !s.expired && !s.unreachable.IsZero() && now.Sub(s.unreachable) >= ttl
	if expires {
		s.expired = true
		s.revocations++
		r.endSession()
	}
	r.mu.Unlock()
	if expires {
		r.mesh.Log.Warn("remote cluster is unreachable for longer than the cache TTL, forgetting its services", "cluster", r.name, "ttl", ttl)
		r.mesh.Services.setNone(r.name)
		r.mesh.ServiceExports.setNone(r.name)
	}
	r.report(now)
}

// report reports the state of the cluster to health and metrics.
func (r *remote) report(now time.Time) {
	text, err := r.describe(now)
	if err != nil {
		r.health.Degraded("not ready", err)
	} else {
		r.health.OK(text)
	}
	r.reportLeftOut()
	r.mesh.Metrics.report(r.mesh.source(), r, err == nil)
}

// leftOut is how many values were left out, as the cluster has too many keys.
func (r *remote) leftOut() int {
	return r.mesh.Services.leftOut(r.name) + r.mesh.ServiceExports.leftOut(r.name)
}

// reportLeftOut reports that the cluster has too many keys, and in the log when that begins.
func (r *remote) reportLeftOut() {
	n, most, part := r.leftOut(), r.mesh.Config.ClusterMeshMaxKeys, r.health.Child("left-out")
	switch {
	case n > 0 && !r.isOver:
		r.mesh.Log.Warn("remote cluster has more keys than are kept, and what follows from the others stays as it is", "cluster", r.name, "most", most, "leftOut", n)
		fallthrough
	case n > 0:
		part.Degraded("keys of a remote cluster are left out", fmt.Errorf("%d values: of services, and of exports, %d are kept (--clustermesh-max-keys), or as many as an eighth of the memory holds (GOMEMLIMIT), and what follows from others stays as it is", n, most))
	case r.isOver:
		part.Remove()
	}
	r.isOver = n > 0
}

// describe returns the state of the cluster in a few words, and what keeps it from being ready.
func (r *remote) describe(now time.Time) (text string, err error) {
	read := r.isRead()
	r.mu.Lock()
	defer r.mu.Unlock()
	s := &r.status
	switch {
	case s.etcd.Err != nil && len(s.etcd.Endpoints) > 0:
		return "", s.etcd.Err
	case s.problem != nil:
		return "", s.problem
	case s.config != nil && r.mesh.Config.ClusterMeshEnableEndpointSync && !s.config.Capabilities.hasServices():
		return "", errors.New("it publishes EndpointSlices alone, and counts as one without services: set clustermesh-service-v2=prefer-legacy there")
	case read:
		return "read", nil
	case now.Sub(s.began) < r.mesh.Config.ClusterMeshSyncTimeout:
		return "being read", nil
	}
	err = fmt.Errorf("not read within --clustermesh-sync-timeout (%s): what follows from it stays as it is", r.mesh.Config.ClusterMeshSyncTimeout)
	if s.etcd.Err != nil {
		err = fmt.Errorf("%w; %w", err, s.etcd.Err)
	}
	if !s.late {
		s.late = true
		r.mesh.Log.Warn("remote cluster is not read in time, continuing without it", "cluster", r.name, "timeout", r.mesh.Config.ClusterMeshSyncTimeout)
	}
	return "", err
}
