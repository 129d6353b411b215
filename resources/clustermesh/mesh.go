// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package clustermesh

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"github.com/skep-operator/skep/resources/cluster"
	"github.com/skep-operator/skep/resources/dryrun"
	"github.com/skep-operator/skep/resources/k8s"
	"github.com/skep-operator/skep/resources/reconcile"
	"github.com/skep-operator/skep/runtime/cell"
	"github.com/skep-operator/skep/runtime/health"
	"github.com/skep-operator/skep/runtime/lifecycle"
)

// Mesh is the remote clusters. It is safe for concurrent use.
type Mesh struct {
	params
	began    time.Time
	timing   timing
	panicked chan *lifecycle.PanicError

	// Services are the global services of remote clusters. They are read for EndpointSlices alone.
	Services *Objects[Service]
	// ServiceExports are the exports of remote clusters. They are read for the multi-cluster services API alone.
	ServiceExports *Objects[ServiceExport]

	ids        *ids          // of clusters that were accepted, now or in an earlier term
	recorded   chan struct{} // closed when the IDs of earlier terms were read
	isRecorded sync.Once

	mu      sync.Mutex
	known   bool              // the directory was read
	kept    map[string]uint32 // the IDs that were written
	remotes map[string]*remote
}

type params struct {
	cell.In

	Config  Config
	Cluster cluster.Config
	Deps    reconcile.Deps
	Client  k8s.Client `optional:"true"`
	Metrics *meshMetrics
	Health  health.Reporter
	Log     *slog.Logger
}

// timing holds intervals.
type timing struct {
	scan         time.Duration // between looks at the directory
	monitor      time.Duration // between looks at a connection
	sessionPause time.Duration // before a cluster is read again
	refusedPause time.Duration // the same where it could not be used
	record       time.Duration // for which clusters wait for the IDs of earlier terms
	relist       time.Duration // between listings of what did not fit
}

var defaultTiming = timing{scan: 2 * time.Second, monitor: time.Second, sessionPause: time.Second, refusedPause: 10 * time.Second, record: 10 * time.Second, relist: time.Minute}

func newMesh(p params) *Mesh {
	bytes := mostBytes(debug.SetMemoryLimit(-1))
	m := &Mesh{
		params: p, began: time.Now(), timing: defaultTiming, panicked: make(chan *lifecycle.PanicError, 1),
		Services:       newObjects(serviceCodec(p.Cluster.MaxConnectedClusters), p.Config.ClusterMeshMaxKeys, bytes),
		ServiceExports: newObjects(exportCodec, p.Config.ClusterMeshMaxKeys, bytes),
		ids:            newIDs(), recorded: make(chan struct{}), remotes: map[string]*remote{},
	}
	p.Deps.Plan.Observe(m.load)
	return m
}

// Clusters returns the names of the remote clusters, in order. They are not known until the directory was read.
func (m *Mesh) Clusters() (names []string, known bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Sorted(maps.Keys(m.remotes)), m.known
}

// load has a dry run wait for the clusters, for the sync time-out at most.
func (m *Mesh) load() dryrun.Load {
	const what = "remote clusters are read"
	switch {
	case m.isRead():
		return dryrun.Load{}
	case time.Since(m.began) < m.Config.ClusterMeshSyncTimeout:
		return dryrun.Load{Busy: []string{what}}
	}
	return dryrun.Load{Failed: []string{what}}
}

func (m *Mesh) isRead() bool {
	m.mu.Lock()
	known, remotes := m.known && (m.Client == nil || maps.Equal(m.kept, m.ids.byName())), slices.Collect(maps.Values(m.remotes))
	m.mu.Unlock()
	return known && !slices.ContainsFunc(remotes, func(r *remote) bool { return !r.isRead() })
}

// run follows the directory until ctx ends.
func (m *Mesh) run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer m.close()
	defer cancel()
	for {
		m.scan(ctx)
		select {
		case <-time.After(m.timing.scan):
		case <-ctx.Done():
			return ctx.Err()
		case panicErr := <-m.panicked:
			panic(panicErr) // the job reports it
		}
	}
}

// close ends all connections. What they read stays until the term ends.
func (m *Mesh) close() {
	m.mu.Lock()
	remotes := slices.Collect(maps.Values(m.remotes))
	m.mu.Unlock()
	for _, r := range remotes {
		r.stop()
	}
}

// scan compares the directory with the connections. Only a directory that was read removes clusters.
func (m *Mesh) scan(ctx context.Context) {
	d, err := readDirectory(m.Config.ClusterMeshConfig, m.Cluster.ClusterName, func(name string) bool { return m.has(name) || m.ids.has(name) })
	if err = errors.Join(append(d.unusable, err)...); err != nil {
		m.Health.Child("directory").Degraded("files of the directory cannot be used", err)
	} else {
		m.Health.Child("directory").OK(fmt.Sprintf("%d remote clusters", len(d.files)))
	}
	if err != nil && len(d.unusable) == 0 {
		return
	}
	for name, file := range d.files {
		m.apply(ctx, name, file)
	}
	for _, r := range m.removed(d) {
		r.stop()
		m.drop(r)
	}
	m.ids.retain(m.has)
	m.setKnown()
	m.Metrics.Clusters.WithLabelValues(m.source()...).Set(float64(len(d.files)))
}

func (m *Mesh) has(name string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.remotes[name] != nil
}

func (m *Mesh) setKnown() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.known = true
}

// apply connects to a cluster that is new, or whose file has changed.
func (m *Mesh) apply(ctx context.Context, name string, file configFile) {
	m.mu.Lock()
	r := m.remotes[name]
	m.mu.Unlock()
	switch {
	case r == nil:
		r = &remote{name: name, mesh: m, health: m.Health.Child(name), endSession: func() {}, status: remoteStatus{began: time.Now()}}
		m.Log.Info("connecting to remote cluster", "cluster", name, "file", file.path)
	case r.file == file || file.content == "": // one that cannot be read keeps the connection
		return
	default:
		m.Log.Info("reconnecting to remote cluster, its configuration has changed", "cluster", name, "file", file.path)
		r.stop()
	}
	r.file = file
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	m.guard(&running, cancel, func() { r.run(ctx) })
	r.stop = func() { cancel(); running.Wait() }
	m.mu.Lock()
	defer m.mu.Unlock()
	m.remotes[name] = r
}

// removed returns the clusters that the directory no longer has.
func (m *Mesh) removed(d directory) (gone []*remote) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for name, r := range m.remotes {
		if _, ok := d.files[name]; !ok {
			gone = append(gone, r)
		}
	}
	return gone
}

// drop forgets a cluster whose connection has ended.
func (m *Mesh) drop(r *remote) {
	m.Log.Info("remote cluster is no longer configured", "cluster", r.name)
	m.mu.Lock()
	delete(m.remotes, r.name)
	m.mu.Unlock()
	m.ids.release(r.name)
	r.health.Remove()
	m.Metrics.forget(m.source(), r.name)
	m.Services.forget(r.name)
	m.ServiceExports.forget(r.name)
}

// guard runs f. When it returns, end is called; a panic of it is the job's.
func (m *Mesh) guard(running *sync.WaitGroup, end context.CancelFunc, f func()) {
	running.Go(func() {
		defer end()
		defer func() {
			if v := recover(); v != nil {
				panicErr, ok := v.(*lifecycle.PanicError)
				if !ok {
					panicErr = &lifecycle.PanicError{Value: v, Stack: debug.Stack()}
				}
				select {
				case m.panicked <- panicErr:
				default:
				}
			}
		}()
		f()
	})
}

// source are the labels of metrics that name this cluster and its node.
func (m *Mesh) source() []string { return []string{m.Cluster.ClusterName, nodeName()} }

// nodeName is the name of the operator's node, or that of its host.
var nodeName = sync.OnceValue(func() string {
	if name := os.Getenv("K8S_NODE_NAME"); name != "" {
		return name
	}
	name, _ := os.Hostname()
	return name
})
