// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package ztunnel

import (
	"context"
	"iter"
	"log/slog"
	"slices"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/skep-operator/skep/resources/spire"
	"github.com/skep-operator/skep/resources/stream"
	"github.com/skep-operator/skep/resources/stream/slim"
	"github.com/skep-operator/skep/runtime/cell"
)

// controller decides which service accounts have entries.
//
// A change of a ServiceAccount is compared only if the stream of Namespaces shows that its namespace is enrolled: the two
// streams are not equally new, and a namespace that is not shown yet is none that has left. A namespace that leaves is
// seen to leave.
type controller struct {
	params
	registrar *spire.Registrar[account]

	opened     chan struct{} // closed when both stores are complete
	open       sync.Once
	namespaces *stream.Store[namespace]
	accounts   *stream.Store[serviceAccount]
}

type params struct {
	cell.In

	Namespaces stream.Resource[namespace]
	Accounts   stream.Resource[serviceAccount]
	SPIRE      spire.Deps
	Metrics    *entryMetrics
	Log        *slog.Logger
}

func newController(p params) *controller {
	c := &controller{params: p, opened: make(chan struct{})}
	c.registrar = spire.NewRegistrar(p.SPIRE, kind, c, p.Metrics.common())
	return c
}

// run starts when all Namespaces and ServiceAccounts are known. It waits for both at once, so that health names both.
func (c *controller) run(ctx context.Context) error {
	var stores errgroup.Group
	stores.Go(func() (err error) { c.namespaces, err = c.Namespaces.Store(ctx); return err })
	stores.Go(func() (err error) { c.accounts, err = c.Accounts.Store(ctx); return err })
	if err := stores.Wait(); err != nil {
		return err
	}
	c.open.Do(func() { close(c.opened) })
	return c.registrar.Run(ctx)
}

// awaitOpen returns when the stores can be used.
func (c *controller) awaitOpen(ctx context.Context) error {
	select {
	case <-c.opened:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// watchNamespaces enqueues the service accounts of namespaces that are enrolled, or not any more.
func (c *controller) watchNamespaces(ctx context.Context) error {
	if err := c.awaitOpen(ctx); err != nil {
		return err
	}
	for batch := range c.Namespaces.Changes(ctx) {
		for _, ch := range batch.Changes {
			if all := slices.Collect(c.accountsOf(ch.Key.Name)); len(all) > 0 {
				c.registrar.Enqueue(namespaces.Trigger(ch.Object), all...)
			}
		}
		c.Metrics.Namespaces.Set(float64(c.namespaces.Len()))
	}
	return ctx.Err()
}

// watchServiceAccounts enqueues the service accounts that come in enrolled namespaces, and all that go.
func (c *controller) watchServiceAccounts(ctx context.Context) error {
	if err := c.awaitOpen(ctx); err != nil {
		return err
	}
	misnamed := map[slim.Key]bool{}
	for batch := range c.Accounts.Changes(ctx) {
		for _, ch := range batch.Changes {
			a, ok := accountOf(ch.Key)
			switch gone := ch.Kind == stream.Delete; {
			case ok && (gone || c.isEnrolled(ch.Key.Namespace)):
				c.registrar.Enqueue(serviceAccounts.Trigger(ch.Object), a)
			case gone:
				delete(misnamed, ch.Key)
			case !ok && !misnamed[ch.Key]:
				if misnamed[ch.Key] = true; len(misnamed) == 1 {
					c.Log.Warn("ignoring ServiceAccounts whose names cannot be a part of a SPIFFE ID", "namespace", ch.Key.Namespace, "example", ch.Key.Name)
				}
			}
		}
		c.Metrics.Ignored.Set(float64(len(misnamed)))
	}
	return ctx.Err()
}

func (c *controller) isEnrolled(name string) bool {
	_, enrolled := c.namespaces.Get(slim.Key{Name: name})
	return enrolled
}

// accountsOf yields the service accounts of a namespace.
func (c *controller) accountsOf(namespace string) iter.Seq[account] {
	return func(yield func(account) bool) {
		for object := range stream.ByIndex(c.accounts, byNamespace, namespace) {
			if a, ok := accountOf(slim.MetaOf(object).Key()); ok && !yield(a) {
				return
			}
		}
	}
}

// State implements spire.Desired. What cannot be decoded may exist, and keeps its entry.
func (c *controller) State(a account) spire.State {
	key := a.key()
	_, exists := c.accounts.Get(key)
	enrolled := c.isEnrolled(key.Namespace)
	switch {
	case exists && enrolled:
		return spire.Wanted
	case (exists || c.accounts.Hides(key)) && (enrolled || c.namespaces.Hides(slim.Key{Name: key.Namespace})):
		return spire.Unknown
	}
	return spire.Unwanted
}

// All implements spire.Desired.
func (c *controller) All() iter.Seq[account] {
	return func(yield func(account) bool) {
		for n := range c.namespaces.All() {
			for a := range c.accountsOf(n.Name) {
				if !yield(a) {
					return
				}
			}
		}
	}
}

// Len implements spire.Desired.
func (c *controller) Len() (n int, known bool) {
	for namespace := range c.namespaces.All() {
		n += stream.CountByIndex(c.accounts, byNamespace, namespace.Name)
	}
	return n, true
}

// Confirm implements spire.Desired: both caches are as new as the call.
func (c *controller) Confirm(ctx context.Context, stale []account) ([]account, error) {
	var fresh errgroup.Group
	fresh.Go(func() error { return c.Namespaces.WaitForFresh(ctx) })
	fresh.Go(func() error { return c.Accounts.WaitForFresh(ctx) })
	if err := fresh.Wait(); err != nil {
		return nil, err
	}
	return slices.DeleteFunc(stale, func(a account) bool { return c.State(a) != spire.Unwanted }), nil
}

// Converged implements spire.Desired.
func (*controller) Converged(func(account) bool) {}
