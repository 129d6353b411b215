// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package nodeipam

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/skep-operator/skep/resources/cluster"
	"github.com/skep-operator/skep/resources/domain/selector"
	"github.com/skep-operator/skep/resources/k8s"
	"github.com/skep-operator/skep/resources/reconcile"
	"github.com/skep-operator/skep/resources/stream"
	"github.com/skep-operator/skep/resources/stream/slim"
	"github.com/skep-operator/skep/runtime/cell"
	"github.com/skep-operator/skep/runtime/health"
)

// controller writes addresses of nodes to Services.
type controller struct {
	params
	services *stream.Store[service]
	nodes    *stream.Store[node]
	slices   reconcile.OnDemand[endpointSlice]
	states   *states
	reads    reads
	odd      *health.Named         // addresses of nodes that are left out
	synced   bool                  // used by functions that map changes
	last     map[slim.Key]*service // LoadBalancer Services with ports, as they were last; used by functions that map changes
}

type params struct {
	cell.In

	Config    Config
	Cluster   cluster.Config
	Services  stream.Resource[service]
	Nodes     stream.Resource[node]
	Listeners *listeners `optional:"true"` // nil where nothing listens on ports of the nodes, or all is shared
	Client    k8s.Client
	Events    *k8s.Events
	Metrics   *serviceMetrics
	Health    health.Reporter
	Log       *slog.Logger
}

func newController(p params) *controller {
	return &controller{params: p, states: newStates(p), last: map[slim.Key]*service{}, odd: health.NewNamed("Node", p.Health.Child("node-addresses"))}
}

// Open is called before anything is watched.
func (c *controller) Open(ctx context.Context) (err error) {
	if c.services, err = c.Services.Store(ctx); err != nil {
		return err
	}
	if c.nodes, err = c.Nodes.Store(ctx); err != nil || c.Listeners == nil {
		return err
	}
	return c.Listeners.open(ctx)
}

// Synced is called when Services and Nodes are known. All Services are queued by then.
func (c *controller) Synced(context.Context) []slim.Key {
	c.synced = true
	c.logLosers()
	return nil
}

func (c *controller) slicesOnDemand() *reconcile.OnDemand[endpointSlice] { return &c.slices }

// nodeChanged is every Service that is served: any field that is kept of a node can matter to it.
func (c *controller) nodeChanged(ch stream.Change[node]) (keys []slim.Key) {
	problem := ""
	if ch.Kind != stream.Delete {
		problem = ch.Object.problem()
	}
	if c.odd.Set(ch.Key.Name, problem) {
		c.Log.Warn("addresses of a node are left out", "node", ch.Key.Name, "reason", problem)
	}
	if !c.synced {
		return nil
	}
	for _, ofClass := range []string{class, ""} {
		for s := range stream.ByIndex(c.services, byClass, ofClass) {
			if isServed(s, c.Cluster) {
				keys = append(keys, s.Key())
			}
		}
	}
	return keys
}

// sliceChanged is the Service of an EndpointSlice, if it depends on endpoints.
func (c *controller) sliceChanged(ch stream.Change[endpointSlice]) []slim.Key {
	if key := serviceOf(ch.Object); c.slices.Needs(key) {
		return []slim.Key{key}
	}
	return nil
}

// Why nothing is written.
const (
	notServed     = "none: the Service gets no addresses of nodes: its type is another one, its class is, or it is being deleted"
	slicesUnknown = "waits: the EndpointSlices are not known yet"
)

// undecodedRetry is how often a Service is reconciled while a Node or an EndpointSlice cannot be decoded: there is no
// change when it is deleted.
const undecodedRetry = time.Minute

// Reconcile writes the addresses of eligible nodes to a Service that has others.
func (c *controller) Reconcile(ctx context.Context, key slim.Key) (reconcile.Result, error) {
	s, exists := c.services.Get(key)
	if !exists || !isOurs(s, c.Cluster) {
		c.slices.Drop(key)
		c.states.remove(key)
		c.reads.forget(key)
		return reconcile.Result{Reason: notServed}, nil
	}
	if !s.DeletionTimestamp.IsZero() {
		c.slices.Drop(key)
		c.states.remove(key)
		return c.reconcileHeld(ctx, s, notServed)
	}
	nodesWanted, err := selector.Parse(s.Annotations.Get(selectorAnnotation))
	if err != nil {
		c.slices.Drop(key)
		c.states.set(s, selectorError(err))
		return c.reconcileHeld(ctx, s, err.Error())
	}
	on, known := c.nodesOf(s)
	if !known {
		return reconcile.Result{Reason: slicesUnknown}, nil
	}
	want, why := c.allowed(s, addresses(c.nodes.All(), nodesWanted, on, familiesOf(s)))
	var result reconcile.Result
	write := func([]string) []string { return want }
	isShown, shown := s.Status.shows(want), want
	if !why.ofAll && c.undecoded(s) { // one of the nodes may have any address
		result.RequeueAfter = undecodedRetry
		write = func(has []string) []string {
			held, _ := c.allowed(s, has)
			return union(want, held)
		}
		shown = write(current(s.Status.LoadBalancer.Ingress))
		isShown = !s.Status.isCut() && s.Status.shows(shown)
	}
	if !isShown {
		if err := c.write(ctx, s, write); err != nil {
			return reconcile.Result{}, err
		}
	}
	c.states.set(s, stateOf(shown, why))
	return result, nil
}

// reconcileHeld lets a Service have what it has, but for the addresses at which a port of it is not its own: its ports may have changed. One that has more
// addresses than are known is read, once a minute: Nodes change all the time.
func (c *controller) reconcileHeld(ctx context.Context, s *service, reason string) (reconcile.Result, error) {
	result, has := reconcile.Result{Reason: reason}, current(s.Status.LoadBalancer.Ingress)
	if want, _ := c.allowed(s, has); len(want) == len(has) {
		if !s.Status.isCut() || c.Config.NodeIPAMJoinNamespaces {
			return result, nil
		}
		if result.RequeueAfter = c.reads.wait(s, time.Now()); result.RequeueAfter > 0 {
			return result, nil
		}
	}
	err := c.write(ctx, s, func(has []string) []string {
		want, _ := c.allowed(s, has)
		return want
	})
	if err == nil {
		c.reads.done(s, time.Now())
	}
	return result, err
}

// reads are when Services were read that keep what they have. It is safe for concurrent use.
type reads struct {
	mu sync.Mutex
	of map[slim.Key]readAt
}

type readAt struct {
	revision slim.Revision
	at       time.Time
}

// wait returns how long a Service is not to be read, in the state in which it was.
func (r *reads) wait(s *service, now time.Time) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	if last := r.of[s.Key()]; last.revision == s.ResourceVersion {
		return max(0, undecodedRetry-now.Sub(last.at))
	}
	return 0
}

// done records that a Service was read.
func (r *reads) done(s *service, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.of == nil {
		r.of = map[slim.Key]readAt{}
	}
	r.of[s.Key()] = readAt{s.ResourceVersion, now}
}

func (r *reads) forget(key slim.Key) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.of, key)
}

// nodesOf are the nodes with endpoints of a Service, nil if it does not depend on them. They are not known before the
// EndpointSlices are.
func (c *controller) nodesOf(s *service) (on map[string]bool, known bool) {
	if !isLocal(s) {
		c.slices.Drop(s.Key())
		return nil, true
	}
	slices := c.slices.Need(s.Key())
	if slices == nil {
		return nil, false
	}
	return withEndpoints(stream.ByIndex(slices, byService, s.Key())), true
}

// undecoded reports whether an object that decides about the Service's addresses cannot be decoded.
func (c *controller) undecoded(s *service) bool {
	if len(c.nodes.Unreadable()) > 0 {
		return true
	}
	if !isLocal(s) {
		return false
	}
	slices := c.slices.Need(s.Key())
	return slices == nil || len(slices.Unreadable()) > 0
}

// errOutdated is returned for a Service that the API server shows in another state than the cache.
var errOutdated = errors.New("the Service has changed since it was read from the cache")

// write writes the addresses of a Service that is still the one in the cache. want returns them, from those that it has.
func (c *controller) write(ctx context.Context, s *service, want func(has []string) []string) error {
	ref := k8s.Ref{Resource: services.Resource(), Namespace: s.Namespace.String(), Name: s.Name, Subresource: "status", UID: s.UID.API()}
	_, err := k8s.Update(ctx, c.Client, ref, func(full *corev1.Service) error {
		if full.ResourceVersion != s.ResourceVersion.String() {
			return errOutdated
		}
		if has := addressesIn(full.Status.LoadBalancer.Ingress); len(has) < len(full.Status.LoadBalancer.Ingress) || !slices.Equal(want(has), has) {
			full.Status.LoadBalancer.Ingress = ingressOf(want(has))
		}
		return nil
	})
	if errors.Is(err, errOutdated) {
		return reconcile.Recheck()
	}
	return err
}
