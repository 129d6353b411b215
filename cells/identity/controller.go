// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package identity

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/skep-operator/skep/resources/agents"
	v2 "github.com/skep-operator/skep/resources/api/v2"
	"github.com/skep-operator/skep/resources/cluster"
	"github.com/skep-operator/skep/resources/cluster/release"
	"github.com/skep-operator/skep/resources/domain/identity"
	"github.com/skep-operator/skep/resources/explain"
	"github.com/skep-operator/skep/resources/k8s"
	"github.com/skep-operator/skep/resources/leading"
	"github.com/skep-operator/skep/resources/panics"
	"github.com/skep-operator/skep/resources/reconcile"
	"github.com/skep-operator/skep/resources/stream"
	"github.com/skep-operator/skep/resources/stream/ciliumio"
	"github.com/skep-operator/skep/resources/stream/slim"
	"github.com/skep-operator/skep/runtime/cell"
	"github.com/skep-operator/skep/runtime/health"
)

// controller passes changes to the table and creates the identities that are missing.
type controller struct {
	params
	queue    *reconcile.Queue[slim.Labels]
	enqueue  func(slim.Labels, ...k8s.Trigger)
	throttle createThrottle
	objects  *panics.Objects // that changed
	handling sync.Mutex      // held while their changes are handled

	mu       sync.Mutex // guards the fields below; never held during a request
	table    *table
	unsynced int // sources that are not synced
	sources  []source
	podStore *stream.Store[slim.Pod] // nil until it is synced
	synced   chan struct{}
	agents   chan struct{} // closed once the agents are known

	observers observers
}

type params struct {
	cell.In

	Config      cluster.Config
	Options     Config
	Filters     *filters
	Release     release.Configured
	Agents      stream.Resource[agents.Pod]
	Pods        stream.Resource[slim.Pod]
	Namespaces  stream.Resource[slim.Namespace]
	Nodes       stream.Resource[ciliumio.Node]
	Identities  stream.Resource[ciliumio.Identity]
	Endpoints   endpointIndex `optional:"true"`
	Client      k8s.Client
	Permissions *k8s.Permissions
	Handover    leading.Handover
	Events      *k8s.Events
	Deps        reconcile.Deps
	Metrics     *identityMetrics
	Health      health.Reporter
	Log         *slog.Logger
}

func newController(p params) *controller {
	bounds := identity.RangeOf(p.Config.ClusterID, p.Config.MaxConnectedClusters)
	c := &controller{
		params: p, objects: p.Deps.ObjectsOf("observe"), synced: make(chan struct{}), agents: make(chan struct{}),
		table: newTable(p.Config.ClusterName, bounds, p.Filters, agents.NewFleet(p.Release), rand.IntN),
	}
	c.table.withoutNodes = !p.Config.NodeCRD()
	c.table.unbraked = !p.Options.IdentityBrake
	c.unsynced = len([]any{p.Agents, p.Pods, p.Namespaces, p.Nodes, p.Identities, p.Endpoints})
	c.queue = reconcile.NewQueue(p.Deps, "make", c.reconcile, reconcile.Workers(writers), reconcile.Backoff(50*time.Millisecond, 100*time.Second), reconcile.HonorBackoff(),
		reconcile.NamespaceOf(podNamespace))
	c.enqueue = c.queue.Add
	return c
}

// podNamespace is the namespace of the pods with a label set, "" where the filters leave it out.
func podNamespace(set slim.Labels) string { return set.Get(identity.NamespaceLabel) }

// write runs the work queue.
func (c *controller) write(ctx context.Context) error { return c.queue.Run(ctx) }

// watchPods starts once it is known which releases the agents run.
func (c *controller) watchPods(ctx context.Context) error {
	select {
	case <-c.agents:
	case <-ctx.Done():
		return ctx.Err()
	}
	return watch(ctx, c, stream.Pods, c.Pods, func(t *table, ch stream.Change[slim.Pod]) (reason string) {
		if ch.Kind == stream.Delete {
			t.setLarge(ch.Key, false)
			t.deletePod(ch.Key)
			return ""
		}
		reason = t.upsertPod(ch.Object)
		if t.setLarge(ch.Key, reason == largeLabels) {
			c.reportLarge(ch.Object)
		}
		return reason
	})
}

// reportLarge says on a pod that it gets no identity, or where agents make that, that none is known of it.
func (c *controller) reportLarge(p *slim.Pod) {
	lacks := "gets no identity"
	if !c.Config.OperatorIdentities() {
		lacks = "is in no CiliumEndpointSlice"
	}
	c.Events.Warning(corev1.ObjectReference{
		APIVersion: "v1", Kind: "Pod", Namespace: p.Namespace.String(), Name: p.Name, UID: p.UID.API(),
	}, "LabelsTooLarge", fmt.Sprintf("The pod %s, since its labels have more than %d KiB together: remove some", lacks, slim.MaxPodLabels>>10))
}

func (c *controller) watchNamespaces(ctx context.Context) error {
	return watch(ctx, c, stream.Namespaces, c.Namespaces, func(t *table, ch stream.Change[slim.Namespace]) string {
		if ch.Kind == stream.Delete {
			t.deleteNamespace(ch.Key.Name)
		} else {
			t.upsertNamespace(ch.Object)
		}
		return ""
	})
}

func (c *controller) watchNodes(ctx context.Context) error {
	return watch(ctx, c, ciliumio.Nodes, c.Nodes, func(t *table, ch stream.Change[ciliumio.Node]) string {
		if ch.Kind == stream.Delete {
			t.deleteNode(ch.Key.Name)
		} else {
			t.addNode(ch.Key.Name)
		}
		return ""
	})
}

// watchIdentities starts with the identities of previous leaders, so that a label set does not get one from each.
func (c *controller) watchIdentities(ctx context.Context) error {
	if err := stream.AwaitPredecessor(ctx, c.Identities, c.Handover, v2.CiliumIdentityResource); err != nil {
		return err
	}
	return watch(ctx, c, ciliumio.Identities, c.Identities, handleIdentity)
}

func handleIdentity(t *table, ch stream.Change[ciliumio.Identity]) string {
	if ch.Kind == stream.Delete {
		t.deleteObject(ch.Object.Name, ch.Object.ResourceVersion)
	} else {
		t.upsertObject(ch.Object)
	}
	return ""
}

// watch passes each change of a resource to the table and enqueues the label sets that it affects. handle returns the
// reason why a pod has no identity.
func watch[T any](ctx context.Context, c *controller, kind stream.Kind[T], r stream.Resource[T], handle func(*table, stream.Change[T]) (reason string)) error {
	for batch := range r.Changes(ctx, stream.BatchSize(64)) {
		for _, ch := range batch.Changes {
			trigger := kind.Trigger(ch.Object)
			c.process(trigger, func() {
				var reason string
				dirty := c.update(func(t *table) {
					if reason = handle(t, ch); !t.synced { // what is missing may not be in the cache yet
						reason = ""
					}
				})
				for _, s := range dirty {
					c.enqueue(s.labels, trigger)
				}
				c.recordReason(ch.Key, trigger, reason)
			})
		}
		if batch.Synced {
			store, err := r.Store(ctx)
			if err != nil {
				return err
			}
			if pods, ok := any(store).(*stream.Store[slim.Pod]); ok {
				c.mu.Lock()
				c.podStore = pods
				c.mu.Unlock()
			}
			c.addSource(source{kind.Name(), func() []slim.Key { return store.Unreadable() }})
			c.markSourceSynced()
		}
	}
	return ctx.Err()
}

// process handles the change of an object. One whose handling panicked waits: a pod has no identity meanwhile, or keeps the one it has.
func (c *controller) process(trigger k8s.Trigger, do func()) {
	c.handling.Lock()
	defer c.handling.Unlock()
	_ = c.objects.Handle(trigger, func() error { do(); return nil }) // it has reported the error
}

func (c *controller) retryObjects() {
	c.handling.Lock()
	defer c.handling.Unlock()
	c.objects.RetryDue()
}

// update runs f on the table and notifies observers of pods whose identity changed. It returns the sets to enqueue.
func (c *controller) update(f func(*table)) (dirty []*set) {
	dirty, changed := c.change(f)
	c.observers.notify(changed)
	return dirty
}

// change runs f on the table. After a panic the table may be half changed.
func (c *controller) change(f func(*table)) (dirty []*set, changed []slim.Key) {
	c.mu.Lock()
	defer c.mu.Unlock()
	defer panics.Sharing()
	c.table.now = time.Now()
	f(c.table)
	dirty, changed = c.table.drain()
	c.Metrics.update(c.table)
	return dirty, changed
}

// recordReason records why a pod has no identity, for the explain command.
func (c *controller) recordReason(pod slim.Key, trigger k8s.Trigger, reason string) {
	if reason == "" || c.Deps.Book == nil {
		return
	}
	cause := &k8s.Cause{Rule: c.Deps.Module.ID + " assign", Triggers: []k8s.Trigger{trigger}}
	explain.SetReason(k8s.WithCause(context.Background(), cause), reason)
	c.Deps.Book.RecordDecision(cause, pod.String(), nil)
}

// markSourceSynced is called for each source once it is synced. With the last one, the allocation of numbers starts.
func (c *controller) markSourceSynced() {
	var pods, sets, objects int
	var reasons []podReason
	triggers := map[slim.Labels][]k8s.Trigger{}
	synced := false
	dirty := c.update(func(t *table) {
		c.unsynced--
		if synced = c.unsynced == 0; synced {
			c.recheckPods(t) // endpoints and their identities are known now
			t.markSynced()
			reasons = t.drainReasons()
			for _, s := range t.dirty {
				triggers[s.labels] = s.podTriggers()
			}
		}
		pods, sets, objects = t.pods.Len(), t.used, len(t.objects)
	})
	for _, s := range dirty {
		c.enqueue(s.labels, triggers[s.labels]...)
	}
	for _, r := range reasons {
		c.recordReason(r.pod, podTrigger(r.pod), r.reason)
	}
	if synced {
		close(c.synced)
		text := "caches synced, creating missing CiliumIdentities"
		if !c.Config.OperatorIdentities() {
			text = "caches synced, agents create CiliumIdentities"
		}
		c.Log.Info(text, "pods", pods, "labelSets", sets, "identities", objects)
	}
}

// watchEndpoints opens the index of endpoints. Where there is none, the source is synced at once.
func (c *controller) watchEndpoints(ctx context.Context) error {
	if c.Endpoints != nil {
		if err := c.Endpoints.open(ctx); err != nil {
			return err
		}
		c.update(func(t *table) {
			t.endpointsWith, t.numberOfEndpoint = c.Endpoints.with, c.Endpoints.of
			if c.Config.OperatorIdentities() { // agents do not make an identity again that endpoints have: another one with its labels counts
				t.inUseByEndpoint = c.Endpoints.has
			}
		})
	}
	c.markSourceSynced()
	<-ctx.Done() // the store stays open so long
	return ctx.Err()
}
