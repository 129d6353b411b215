// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package endpointslice

import (
	"context"
	"sync"
	"sync/atomic"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/types"

	v2 "github.com/skep-operator/skep/resources/api/v2"
	"github.com/skep-operator/skep/resources/api/v2alpha1"
	"github.com/skep-operator/skep/resources/domain/identity"
	"github.com/skep-operator/skep/resources/k8s"
	"github.com/skep-operator/skep/resources/stream"
	"github.com/skep-operator/skep/resources/stream/ciliumio"
	"github.com/skep-operator/skep/resources/stream/slim"
)

// fromPods makes endpoints of pods, of the identities that the operator has
// assigned to them, and of the keys of their nodes. CiliumEndpoints are not read.
type fromPods struct {
	pods       stream.Resource[slim.Pod]
	nodes      stream.Resource[ciliumio.Node]
	identities identity.Assignments
	views      atomic.Pointer[podViews] // nil until they are complete
}

type podViews struct {
	pods  *stream.Store[slim.Pod]
	nodes *stream.Store[ciliumio.Node]
}

var podsByNode = stream.NewIndex("node", func(p *slim.Pod, add func(slim.String)) {
	if p.Spec.NodeName != (slim.String{}) && !p.Spec.HostNetwork {
		add(p.Spec.NodeName)
	}
})

func newFromPods(pods stream.Resource[slim.Pod], nodes stream.Resource[ciliumio.Node], a identity.Assignments) source {
	return &fromPods{pods: pods, nodes: nodes, identities: a}
}

func (f *fromPods) follow(ctx context.Context, see func(slim.Key, k8s.Trigger), synced func()) error {
	var v podViews
	var err error
	if v.pods, err = f.pods.Store(ctx); err != nil {
		return err
	}
	if v.nodes, err = f.nodes.Store(ctx); err != nil {
		return err
	}
	f.views.Store(&v)
	changed := newChangedPods()
	defer f.identities.Observe(changed.add)() // before pods are looked at: no identity comes unnoticed
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return f.followPods(ctx, see, synced) })
	g.Go(func() error { return f.followNodes(ctx, see) })
	g.Go(func() error { return f.followIdentities(ctx, changed, see) })
	return g.Wait()
}

// followPods tells of pods. All are known when it is known, too, which identities
// those have that were there at the start.
func (f *fromPods) followPods(ctx context.Context, see func(slim.Key, k8s.Trigger), synced func()) error {
	for batch := range f.pods.Batches(ctx, 256, 0, stream.Named("endpointslice")) {
		for _, e := range batch {
			if e.Kind != stream.Sync {
				see(e.Key, k8s.Trigger{Kind: "Pod", Namespace: e.Key.Namespace, Name: e.Key.Name, ResourceVersion: e.Object.ResourceVersion.String()})
				continue
			}
			select {
			case <-f.identities.Complete():
				f.seeAll(see)
				synced()
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		batch.Done(nil)
	}
	return ctx.Err()
}

// seeAll tells of all pods once more, now that their identities are known.
func (f *fromPods) seeAll(see func(slim.Key, k8s.Trigger)) {
	for p := range f.views.Load().pods.All() {
		see(p.Key(), k8s.Trigger{Kind: "Pod", Namespace: p.Namespace.String(), Name: p.Name, ResourceVersion: p.ResourceVersion.String()})
	}
}

// followNodes tells of the pods of nodes whose key has changed.
func (f *fromPods) followNodes(ctx context.Context, see func(slim.Key, k8s.Trigger)) error {
	keys := map[string]int{}
	for e := range f.nodes.Events(ctx, stream.Named("endpointslice.keys")) {
		if e.Kind != stream.Sync {
			key := 0
			if e.Kind == stream.Upsert {
				key = e.Object.Spec.Encryption.Key
			}
			before := keys[e.Key.Name]
			if keys[e.Key.Name] = key; key == 0 {
				delete(keys, e.Key.Name)
			}
			if before != key {
				trigger := k8s.Trigger{Kind: "CiliumNode", Name: e.Key.Name, ResourceVersion: e.Object.ResourceVersion.String()}
				for p := range stream.ByIndex(f.views.Load().pods, podsByNode, slim.MakeString(e.Key.Name)) {
					see(p.Key(), trigger)
				}
			}
		}
		e.Done(nil)
	}
	return ctx.Err()
}

// changedPods gathers pods whose identity has changed. Whoever assigns them is not
// held up.
type changedPods struct {
	mu   sync.Mutex
	pods map[types.NamespacedName]struct{}
	wake chan struct{} // there are some
}

func newChangedPods() *changedPods {
	return &changedPods{pods: map[types.NamespacedName]struct{}{}, wake: make(chan struct{}, 1)}
}

func (c *changedPods) add(pod types.NamespacedName) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.pods[pod] = struct{}{}
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

func (c *changedPods) take() map[types.NamespacedName]struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	pods := c.pods
	c.pods = map[types.NamespacedName]struct{}{}
	return pods
}

// followIdentities tells of pods whose identity has changed.
func (f *fromPods) followIdentities(ctx context.Context, changed *changedPods, see func(slim.Key, k8s.Trigger)) error {
	for {
		select {
		case <-changed.wake:
		case <-ctx.Done():
			return ctx.Err()
		}
		for pod := range changed.take() {
			why := k8s.Trigger{Kind: "CiliumIdentity"}
			if n, ok := f.identities.Of(pod); ok {
				why.Name = n.String()
			}
			see(slim.Key{Namespace: pod.Namespace, Name: pod.Name}, why)
		}
	}
}

// says makes an endpoint of a pod that has one. While its labels have no identity
// yet, it keeps the one that it had; without any it is not told.
func (f *fromPods) says(key slim.Key, last int64) (says v2alpha1.CoreCiliumEndpoint, ok bool) {
	v := f.views.Load()
	p, ok := v.pods.Get(key)
	if !ok || !hasEndpoint(p) {
		return says, false
	}
	id := last
	if n, made := f.identities.Of(types.NamespacedName(key)); made {
		id = int64(n)
	}
	if id == 0 {
		return says, false
	}
	says = v2alpha1.CoreCiliumEndpoint{
		Name: p.Name, IdentityID: id,
		Networking: &v2.EndpointNetworking{Addressing: []v2.AddressPair{addressing(p)}},
		NamedPorts: ciliumio.NamedPorts{NamedPorts: p.Spec.NamedPorts}.API(),
	}
	if p.Status.HostIP.IsValid() {
		says.Networking.NodeIP = p.Status.HostIP.String()
	}
	if n, known := v.nodes.Get(slim.Key{Name: p.Spec.NodeName.String()}); known {
		says.Encryption.Key = n.Spec.Encryption.Key
	}
	return says, true
}

// hasEndpoint reports whether a pod has an endpoint of its own, and an address.
func hasEndpoint(p *slim.Pod) bool {
	switch p.Status.Phase.String() {
	case "Succeeded", "Failed":
		return false
	}
	pair := addressing(p)
	return !p.Spec.HostNetwork && p.Spec.NodeName != (slim.String{}) && pair != (v2.AddressPair{})
}

// addressing is the pod's first address of each family.
func addressing(p *slim.Pod) (pair v2.AddressPair) {
	for _, a := range p.Status.PodIPs {
		switch {
		case a.IP.Is4() && pair.IPv4 == "":
			pair.IPv4 = a.IP.String()
		case a.IP.Is6() && pair.IPv6 == "":
			pair.IPv6 = a.IP.String()
		}
	}
	return pair
}

func (f *fromPods) confirm(ctx context.Context) error { return f.pods.Confirm(ctx) }
