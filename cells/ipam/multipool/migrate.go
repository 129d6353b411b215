// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package multipool

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	v2 "github.com/skep-operator/skep/resources/api/v2"
	"github.com/skep-operator/skep/resources/k8s"
	"github.com/skep-operator/skep/resources/reconcile"
	"github.com/skep-operator/skep/resources/stream"
	"github.com/skep-operator/skep/resources/stream/ciliumio"
	"github.com/skep-operator/skep/resources/stream/slim"
	"github.com/skep-operator/skep/runtime/cell"
)

// migrator converts the podCIDRs that nodes have of the IPAM mode cluster-pool when a term begins, each node by one write: a
// term that ends meanwhile leaves nodes that are converted, and others that are not, and the next one goes on.
type migrator struct {
	migratorParams
	queue *reconcile.Queue[string]
	store *stream.Store[ciliumio.Node]
	uids  map[string]string // of the nodes to convert
	begun chan struct{}     // closed when store and uids are set

	mu       sync.Mutex
	tries    map[string]int
	open     map[string]bool // nodes that were neither converted nor tried often enough
	failures map[string]string
	finished chan struct{} // closed when none is open
}

// maxTries is how often the conversion of a node is tried before others are allocated CIDRs. It is tried on after that.
const maxTries = 10

type migratorParams struct {
	cell.In

	Config Config
	Client k8s.Client
	Deps   reconcile.Deps
	Log    *slog.Logger
}

func newMigrator(p migratorParams) *migrator {
	m := &migrator{
		migratorParams: p, uids: map[string]string{}, begun: make(chan struct{}),
		tries: map[string]int{}, open: map[string]bool{}, failures: map[string]string{}, finished: make(chan struct{}),
	}
	m.queue = reconcile.NewQueue(p.Deps, "migrate", m.convert, reconcile.Workers(max(1, p.Config.MultiPoolMigrationWorkers)))
	return m
}

// run runs the work queue from the time when migrate has filled it.
func (m *migrator) run(ctx context.Context) error {
	if !m.Config.EnableClusterPoolToMultiPoolMigration {
		return nil
	}
	select {
	case <-m.begun:
		return m.queue.Run(ctx)
	case <-ctx.Done():
		return ctx.Err()
	}
}

// migrate returns when all nodes with podCIDRs are converted, or were tried often enough: failures are why some are not.
func (m *migrator) migrate(ctx context.Context, store *stream.Store[ciliumio.Node]) (failures map[string]string) {
	if !m.Config.EnableClusterPoolToMultiPoolMigration {
		return nil
	}
	m.begin(store)
	select {
	case <-m.finished:
	case <-ctx.Done():
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.Log.Info("pod CIDRs of CiliumNodes are migrated to multi-pool", "nodes", len(m.uids), "failed", len(m.failures))
	return maps.Clone(m.failures)
}

func (m *migrator) begin(store *stream.Store[ciliumio.Node]) {
	select {
	case <-m.begun: // the term tries again to open its streams
		return
	default:
	}
	m.store = store
	all := conversions(slices.Collect(store.All()))
	for _, c := range all {
		if c.obstacle != "" {
			m.failures[c.name] = c.obstacle
			continue
		}
		m.uids[c.name], m.open[c.name] = c.uid, true
	}
	if len(m.open) == 0 {
		close(m.finished)
	}
	for _, c := range all {
		if c.obstacle == "" {
			m.queue.Add(c.name, k8s.Trigger{Kind: ciliumio.Nodes.Name(), Name: c.name})
		}
	}
	close(m.begun)
}

// convert converts a node. One that is gone, or another one of its name, has none of those podCIDRs.
func (m *migrator) convert(ctx context.Context, name string) error {
	ref := k8s.Ref{Resource: v2.CiliumNodeResource, Name: name}
	stored, written, err := m.Client.Modify(ctx, ref, func(u *unstructured.Unstructured) error {
		if string(u.GetUID()) != m.uids[name] || u.GetDeletionTimestamp() != nil || ciliumio.IgnoresIPAM(u.GetAnnotations()) {
			return errOutdated
		}
		return convert(u, m.Config.IPAMDefaultIPPool)
	})
	if errors.Is(err, errOutdated) || k8s.IsNotFound(err, ref) {
		err, written = nil, false
	}
	if err == nil && written {
		m.awaitShown(ctx, name, stored.GetResourceVersion())
	}
	m.record(name, err)
	return err
}

// awaitShown returns when the stream shows a converted node. One that it shows later is safe: its podCIDRs are taken.
func (m *migrator) awaitShown(ctx context.Context, name, resourceVersion string) {
	revision, err := slim.ParseRevision(resourceVersion)
	if err != nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	_ = m.store.WaitFor(ctx, slim.Key{Name: name}, revision)
}

// record records an attempt.
func (m *migrator) record(name string, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.tries[name]++
	if delete(m.failures, name); err != nil {
		m.failures[name] = bounded(err.Error())
	}
	if !m.open[name] || err != nil && m.tries[name] < maxTries {
		return
	}
	if delete(m.open, name); len(m.open) == 0 {
		close(m.finished)
	}
}
