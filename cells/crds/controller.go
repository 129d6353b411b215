// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package crds

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/skep-operator/skep/resources/api"
	"github.com/skep-operator/skep/resources/cluster"
	"github.com/skep-operator/skep/resources/envoy"
	"github.com/skep-operator/skep/resources/k8s"
	"github.com/skep-operator/skep/resources/reconcile"
	"github.com/skep-operator/skep/resources/stream"
	"github.com/skep-operator/skep/runtime/cell"
	"github.com/skep-operator/skep/runtime/lifecycle"
)

// controller registers the CRDs that the cluster needs.
type controller struct {
	params
	client crdClient
	kinds  map[string]api.Kind // by CRD name
	queue  *reconcile.Queue[string]

	mu      sync.Mutex
	read    map[string]state // by the last GET
	watched map[string]state // by the watch
	results map[string]result
	missing sets.Set[string] // CRDs that are not established
	awaited sets.Set[string] // those of them that may be soon
	fetched map[string]*unstructured.Unstructured
	ready   chan struct{} // closed when awaited becomes empty
}

type params struct {
	cell.In

	Config    Config
	Cluster   cluster.Config
	Gateways  envoy.Config
	Client    k8s.Client
	CRDs      stream.Resource[crdMetadata]
	Reconcile reconcile.Deps
	Metrics   *crdMetrics
	Log       *slog.Logger
}

// result is the result of comparing an installed CRD with ours.
type result string

const (
	created result = "created"
	updated result = "updated"
	equal   result = "equal"
	drifted result = "drifted" // our version, and another schema
	wider   result = "wider"   // it has fields that ours lacks
	newer   result = "newer"
	foreign result = "foreign" // of another project's, which has no version of ours
	failed  result = "failed"
	deleted result = "deleted" // since it was registered

	uncompared result = "" // it is established and has our version; the schemas were not compared
)

func newController(p params) *controller {
	c := &controller{
		params: p, client: crdClient{p.Client, p.Cluster.Release.Edition()}, kinds: map[string]api.Kind{},
		read: map[string]state{}, watched: map[string]state{}, results: map[string]result{},
		missing: sets.Set[string]{}, awaited: sets.Set[string]{}, fetched: map[string]*unstructured.Unstructured{}, ready: make(chan struct{}),
	}
	c.queue = reconcile.NewQueue(p.Reconcile, "register", c.register, reconcile.Workers(8), reconcile.Backoff(50*time.Millisecond, 30*time.Second))
	for _, k := range wanted(p.Config, p.Cluster, p.Gateways) {
		name := k.CRDName()
		c.kinds[name] = k
		c.missing.Insert(name)
		c.awaited.Insert(name)
		c.queue.Add(name, p.Reconcile.TermTrigger())
	}
	return c
}

func (c *controller) run(ctx context.Context) error { return c.queue.Run(ctx) }

// firstPass delays the other modules of the term until all CRDs are established, or need longer. The others are
// registered later; the streams of their kinds wait for them.
func (c *controller) firstPass() lifecycle.Hook {
	return lifecycle.Funcs{OnStart: func(ctx context.Context) error {
		deadline := time.NewTimer(firstPassLimit / 2)
		defer deadline.Stop()
		select {
		case <-c.ready:
		case <-ctx.Done():
		case <-deadline.C:
		}
		if missing := c.missingText(); missing != "" {
			c.Log.Warn("starting without some CRDs, the duties that need them wait", "missing", missing)
		}
		return nil
	}}
}

func (c *controller) missingText() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return strings.Join(sets.List(c.missing), ", ")
}

// establishedPause is the interval of reads of a new CRD until it is established.
const establishedPause = 50 * time.Millisecond

// register reconciles one CRD until it is established.
func (c *controller) register(ctx context.Context, name string) error {
	o, err := c.advance(ctx, c.kinds[name])
	switch {
	case ctx.Err() != nil:
		return err
	case err != nil:
		c.Metrics.set(c.client.edition, c.kinds[name], o.installed, failed)
		if isPermanent(err) {
			c.markReady(name, false)
		}
		return err
	}
	if o.result == uncompared {
		c.markReady(name, true)
		return reconcile.RequeueAfter(comparePause)
	}
	c.recordResult(name, o)
	if !o.serves {
		return reconcile.RequeueAfter(establishedPause)
	}
	c.markReady(name, true)
	return nil
}

// comparePause delays the comparison of schemas, which takes CPU time, until other duties of a new term have started.
const comparePause = 2 * time.Second

// keepFetched keeps a CRD for its comparison.
func (c *controller) keepFetched(name string, installed *unstructured.Unstructured) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.fetched[name] = installed
}

// get returns the CRD that was kept for its comparison, or reads it if it has changed since.
func (c *controller) get(ctx context.Context, k api.Kind) (*unstructured.Unstructured, error) {
	c.mu.Lock()
	name := k.CRDName()
	kept := c.fetched[name]
	delete(c.fetched, name)
	if now, isSeen := c.watched[name]; isSeen && now.outdates(c.read[name]) {
		kept = nil
	}
	c.mu.Unlock()
	if kept != nil {
		return kept, nil
	}
	found, err := c.client.get(ctx, k)
	if err == nil {
		c.recordRead(k.CRDName(), stateOfCRD(found))
	}
	return found, err
}

// isAwaited reports whether firstPass waits for a CRD.
func (c *controller) isAwaited(name string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.awaited.Has(name)
}

// markReady ends the wait for a CRD, which is established or needs longer.
func (c *controller) markReady(name string, serves bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if serves {
		c.missing.Delete(name)
	}
	if c.awaited.Has(name) && c.awaited.Delete(name).Len() == 0 {
		close(c.ready)
	}
}

// isPermanent reports whether an error lasts until a user acts.
func isPermanent(err error) bool {
	return apierrors.IsForbidden(err) || apierrors.IsInvalid(err) || errors.Is(err, errNamesTaken) || errors.Is(err, errBeingDeleted)
}

// observation is the result of a step.
type observation struct {
	installed string // version, from the label
	result    result
	lost      string // the field for which it is wider
	serves    bool   // from its conditions
}

var errBeingDeleted = errors.New("it is being deleted; it is recreated when it is gone")

// advance makes the next step towards a current and established CRD.
func (c *controller) advance(ctx context.Context, k api.Kind) (observation, error) {
	found, err := c.get(ctx, k)
	if err == nil && c.isAwaited(k.CRDName()) && c.isServed(k, found) {
		c.keepFetched(k.CRDName(), found)
		return observation{installed: k.Version(c.client.edition), result: uncompared, serves: true}, nil
	}
	ours, parseErr := k.UnstructuredCRD(c.client.edition)
	if parseErr != nil {
		return observation{}, parseErr
	}
	if k8s.IsNotFound(err, ref(k)) {
		c.recordDeleted(k.CRDName())
		err = c.client.create(ctx, ours)
		if err == nil {
			return observation{installed: k.Version(c.client.edition), result: created}, nil
		}
		if k8s.IsAlreadyExists(err, ref(k)) { // another replica was faster
			found, err = c.client.get(ctx, k)
		}
	}
	if err != nil {
		return observation{}, err
	}
	conditions, err := decodeConditions(found)
	if err != nil {
		return observation{}, err
	}
	d := decide(k, c.client.edition, found, ours)
	switch d.action {
	case wait:
		return observation{installed: d.installed}, errBeingDeleted
	case update: // its conditions are older than the update
		return observation{installed: d.installed, result: updated}, c.client.update(ctx, k, ours)
	}
	serves, err := established(conditions)
	return observation{installed: d.installed, result: d.result, lost: d.lost, serves: serves}, err
}

// isServed reports whether a CRD has our version and is established. It does not compare schemas.
func (c *controller) isServed(k api.Kind, found *unstructured.Unstructured) bool {
	if !isCurrent(k, c.client.edition, found) {
		return false
	}
	conditions, err := decodeConditions(found)
	if err != nil {
		return false
	}
	serves, err := established(conditions)
	return serves && err == nil
}

// recordResult logs and counts a new result. The next step of a created or updated CRD finds it equal.
func (c *controller) recordResult(name string, l observation) {
	c.mu.Lock()
	defer c.mu.Unlock()
	before, k := c.results[name], c.kinds[name]
	if l.result == equal && (before == created || before == updated) {
		l.result = before
	}
	c.results[name] = l.result
	switch {
	case l.result == before:
	case l.result == created:
		c.Log.Info("created CRD", "name", name, "version", k.Version(c.client.edition))
	case l.result == updated:
		c.Log.Info("updated CRD", "name", name, "from", l.installed, "to", k.Version(c.client.edition))
	case l.result == newer:
		c.Log.Info("keeping newer CRD", "name", name, "installed", l.installed, "ours", k.Version(c.client.edition))
	case l.result == foreign:
		c.Log.Info("keeping CRD of another project, which has no version", "name", name, "label", k.VersionLabel())
	case l.result == wider:
		c.Log.Warn("keeping CRD that has a field that ours lacks, and that objects would lose; remove the field, or the label, to have the CRD updated", "label", k.VersionLabel(), "name", name, "field", l.lost, "version", l.installed)
	case l.result == drifted:
		c.Log.Warn("keeping CRD that has our version and another schema", "name", name, "version", l.installed, "label", k.VersionLabel())
	}
	c.Metrics.set(c.client.edition, k, l.installed, l.result)
}

// recordDeleted logs that a CRD is gone that was registered in this term.
func (c *controller) recordDeleted(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if before := c.results[name]; before != "" && before != deleted {
		c.results[name] = deleted
		c.Log.Warn("recreating CRD that was deleted with its objects", "name", name)
	}
}

// logSkipped logs the text of the original.
func logSkipped(log *slog.Logger) { log.Info("Skipping creation of CRDs") }
