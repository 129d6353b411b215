// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package spire

import (
	"context"
	"iter"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/skep-operator/skep/resources/cluster"
	"github.com/skep-operator/skep/resources/domain/identity"
	"github.com/skep-operator/skep/resources/k8s"
	"github.com/skep-operator/skep/resources/spire"
	"github.com/skep-operator/skep/resources/stream"
	"github.com/skep-operator/skep/resources/stream/ciliumio"
	"github.com/skep-operator/skep/runtime/cell"
)

// controller decides which identities have entries. Where identities are objects, these decide.
type controller struct {
	params
	own       identity.Range // entries of other numbers belong to other clusters
	registrar *spire.Registrar[identity.Number]

	ignored atomic.Int64 // CiliumIdentities without a number

	mu       sync.Mutex
	reported map[identity.Number]bool // deleted in etcd, and their entries may exist
	// gone has the namespaces of CiliumIdentities that were seen to go, and whose entries may exist.
	gone map[identity.Number]string
}

type params struct {
	cell.In

	Cluster    cluster.Config
	Identities *identities `optional:"true"` // nil: identities are not kept as objects
	SPIRE      spire.Deps
	Metrics    *entryMetrics
	Log        *slog.Logger
}

func newController(p params) *controller {
	c := &controller{
		params: p, own: identity.RangeOf(p.Cluster.ClusterID, p.Cluster.MaxConnectedClusters), reported: map[identity.Number]bool{},
		gone: map[identity.Number]string{},
	}
	if p.Identities == nil {
		p.SPIRE.MaxShare = 1 // what was reported is deleted
	}
	k := kind
	k.Lane = c.namespaceOf
	c.registrar = spire.NewRegistrar(p.SPIRE, k, c, p.Metrics.common())
	return c
}

// run starts when all CiliumIdentities are known.
func (c *controller) run(ctx context.Context) error {
	if c.Identities != nil {
		if err := c.Identities.open(ctx); err != nil {
			return err
		}
	}
	return c.registrar.Run(ctx)
}

// watch enqueues identities that change.
func (c *controller) watch(ctx context.Context) error {
	if c.Identities == nil {
		<-ctx.Done()
		return ctx.Err()
	}
	misnamed := map[string]bool{}
	for batch := range c.Identities.stream.Changes(ctx) {
		for _, ch := range batch.Changes {
			n, ok := registered(ch.Key.Name)
			switch {
			case ok:
				c.recordGone(n, ch)
				c.registrar.Enqueue(ciliumio.Identities.Trigger(ch.Object), n)
			case ch.Kind == stream.Delete:
				delete(misnamed, ch.Key.Name)
			case !misnamed[ch.Key.Name]:
				if misnamed[ch.Key.Name] = true; len(misnamed) == 1 {
					c.Log.Warn("ignoring CiliumIdentities whose names are no numbers of identities", "example", ch.Key.Name)
				}
			}
		}
		c.ignored.Store(int64(len(misnamed)))
		c.Metrics.Ignored.Set(float64(len(misnamed)))
	}
	return ctx.Err()
}

// recordGone keeps the namespace of a CiliumIdentity that goes.
func (c *controller) recordGone(n identity.Number, ch stream.Change[ciliumio.Identity]) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if namespace := labeledNamespace(ch.Object); ch.Kind == stream.Delete && namespace != "" {
		c.gone[n] = namespace
	} else {
		delete(c.gone, n)
	}
}

// namespaceOf is the namespace of the pods of an identity, "" if it is not known: of one that was not seen, or that is in etcd alone, there is the number only.
func (c *controller) namespaceOf(n identity.Number) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if namespace, is := c.gone[n]; is {
		return namespace
	}
	if c.Identities == nil {
		return ""
	}
	return c.Identities.namespaceOf(n)
}

// Deleted implements identity.Deletions.
func (c *controller) Deleted(numbers ...identity.Number) {
	if len(numbers) == 0 {
		return
	}
	if c.Identities == nil {
		c.mu.Lock()
		for _, n := range numbers {
			c.reported[n] = true
		}
		c.mu.Unlock()
	}
	c.registrar.Enqueue(k8s.Trigger{Kind: "Identity", Name: numbers[len(numbers)-1].String()}, numbers...)
}

// State implements spire.Desired.
func (c *controller) State(n identity.Number) spire.State {
	if n < firstNumber {
		return spire.Unknown
	}
	if c.Identities != nil {
		return c.Identities.state(n)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.reported[n] {
		return spire.Unwanted
	}
	return spire.Unknown
}

// All implements spire.Desired.
func (c *controller) All() iter.Seq[identity.Number] {
	if c.Identities == nil {
		return func(func(identity.Number) bool) {}
	}
	return c.Identities.all()
}

// Len implements spire.Desired.
func (c *controller) Len() (n int, known bool) {
	if c.Identities == nil {
		return 0, false
	}
	return c.Identities.store.Len() - int(c.ignored.Load()), true
}

// Confirm implements spire.Desired: numbers of this cluster that a cache which is as new as the list does not have either. What
// was reported needs no confirmation.
func (c *controller) Confirm(ctx context.Context, stale []identity.Number) ([]identity.Number, error) {
	if c.Identities == nil {
		return stale, nil
	}
	stale = slices.DeleteFunc(stale, func(n identity.Number) bool { return !c.own.Contains(n) })
	if len(stale) == 0 {
		return nil, nil
	}
	if err := c.Identities.stream.WaitForFresh(ctx); err != nil {
		return nil, err
	}
	return slices.DeleteFunc(stale, func(n identity.Number) bool { return c.State(n) != spire.Unwanted }), nil
}

// Converged implements spire.Desired: deleted identities without entries are forgotten.
func (c *controller) Converged(has func(identity.Number) bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	maps.DeleteFunc(c.reported, func(n identity.Number, _ bool) bool { return !has(n) })
	maps.DeleteFunc(c.gone, func(n identity.Number, _ string) bool { return !has(n) })
}
