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
	"github.com/skep-operator/skep/resources/cluster"
	"github.com/skep-operator/skep/resources/domain/identity"
	"github.com/skep-operator/skep/resources/k8s"
	"github.com/skep-operator/skep/resources/stream"
	"github.com/skep-operator/skep/resources/stream/ciliumio"
	"github.com/skep-operator/skep/resources/stream/slim"
)

// podSource computes endpoints from pods, the identities that the operator has assigned to them, and the keys of their
// nodes. CiliumEndpoints are not read.
type podSource struct {
	fields     fields
	encryption encryption
	pods       stream.Resource[slim.Pod]
	nodes      stream.Resource[ciliumio.Node]
	identities identity.Assignments
	stores     atomic.Pointer[podStores] // nil until they are synced
}

type podStores struct {
	pods  *stream.Store[slim.Pod]
	nodes *stream.Store[ciliumio.Node]
}

var podsByNode = stream.NewIndex("node", func(p *slim.Pod, add func(slim.String)) {
	if p.Spec.NodeName != (slim.String{}) && !p.Spec.HostNetwork {
		add(p.Spec.NodeName)
	}
})

func newPodSource(pods stream.Resource[slim.Pod], nodes stream.Resource[ciliumio.Node], a identity.Assignments, shared cluster.Config) source {
	return &podSource{fields: fieldsOf(shared), encryption: encryption{shared.EnableWireguard, shared.EnableIPsec}, pods: pods, nodes: nodes, identities: a}
}

func (s *podSource) watch(ctx context.Context, handle func(slim.Key, k8s.Trigger), synced func()) error {
	var v podStores
	var err error
	if v.pods, err = s.pods.Store(ctx); err != nil {
		return err
	}
	if v.nodes, err = s.nodes.Store(ctx); err != nil {
		return err
	}
	s.stores.Store(&v)
	changed := newChangedPods()
	defer s.identities.Observe(changed.add)() // before pods are handled: no change of an identity is missed
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return s.watchPods(ctx, handle, synced) })
	g.Go(func() error { return s.watchNodes(ctx, handle) })
	g.Go(func() error { return s.watchIdentities(ctx, changed, handle) })
	return g.Wait()
}

// watchPods handles pods. The source is synced once the initial pods have their identities, too.
func (s *podSource) watchPods(ctx context.Context, handle func(slim.Key, k8s.Trigger), synced func()) error {
	for batch := range s.pods.Changes(ctx) {
		for _, ch := range batch.Changes {
			handle(ch.Key, stream.Pods.Trigger(ch.Object))
		}
		if !batch.Synced {
			continue
		}
		select {
		case <-s.identities.Complete():
			s.handleAll(handle)
			synced()
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return ctx.Err()
}

// handleAll handles all pods again, as their identities are known now.
func (s *podSource) handleAll(handle func(slim.Key, k8s.Trigger)) {
	for p := range s.stores.Load().pods.All() {
		handle(p.Key(), stream.Pods.Trigger(p))
	}
}

// watchNodes handles the pods of nodes whose key has changed.
func (s *podSource) watchNodes(ctx context.Context, handle func(slim.Key, k8s.Trigger)) error {
	type nodeKey struct {
		known     bool
		key       int
		undecoded bool
	}
	keys := map[string]nodeKey{}
	for batch := range s.nodes.Changes(ctx, stream.WithSubscriberName("endpointslice.keys")) {
		for _, ch := range batch.Changes {
			var now nodeKey
			if ch.Kind == stream.Upsert {
				now = nodeKey{true, ch.Object.Spec.Encryption.Key, ch.Object.CannotDecode(keyPath)}
			}
			before := keys[ch.Key.Name]
			if keys[ch.Key.Name] = now; now == (nodeKey{}) {
				delete(keys, ch.Key.Name)
			}
			if before != now {
				trigger := ciliumio.Nodes.Trigger(ch.Object)
				for p := range stream.ByIndex(s.stores.Load().pods, podsByNode, slim.MakeString(ch.Key.Name)) {
					handle(p.Key(), trigger)
				}
			}
		}
	}
	return ctx.Err()
}

// changedPods collects pods whose identity has changed, without blocking the identity controller.
type changedPods struct {
	mu   sync.Mutex
	pods map[types.NamespacedName]struct{}
	wake chan struct{} // pods is not empty
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

func (c *changedPods) drain() map[types.NamespacedName]struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	pods := c.pods
	c.pods = map[types.NamespacedName]struct{}{}
	return pods
}

// watchIdentities handles pods whose identity has changed.
func (s *podSource) watchIdentities(ctx context.Context, changed *changedPods, handle func(slim.Key, k8s.Trigger)) error {
	for {
		select {
		case <-changed.wake:
		case <-ctx.Done():
			return ctx.Err()
		}
		for pod := range changed.drain() {
			trigger := k8s.Trigger{Kind: ciliumio.Identities.Name()}
			if n, ok := s.identities.ForPod(pod); ok {
				trigger.Name = n.String()
			}
			handle(slim.Key(pod), trigger)
		}
	}
}

// content is the entry of a pod with an endpoint. While its labels have no identity yet, it keeps the last one; without
// any there is no entry.
func (s *podSource) content(key slim.Key, last int64) (entry v2alpha1.CoreCiliumEndpoint, ok bool) {
	v := s.stores.Load()
	p, ok := v.pods.Get(key)
	if !ok || !hasEndpoint(p) {
		return entry, false
	}
	id := last
	if n, made := s.identities.ForPod(types.NamespacedName(key)); made {
		id = int64(n)
	}
	if id == 0 {
		return entry, false
	}
	entry = v2alpha1.CoreCiliumEndpoint{
		Name: p.Name, IdentityID: id,
		Networking: &v2.EndpointNetworking{Addressing: []v2.AddressPair{addressing(p)}},
		NamedPorts: ciliumio.NamedPorts{NamedPorts: p.Spec.NamedPorts}.API(), ServiceAccount: p.Spec.ServiceAccountName.String(), PodUID: p.UID.String(),
	}
	if p.Status.HostIP.IsValid() {
		entry.Networking.NodeIP = p.Status.HostIP.String()
	}
	n, known := v.nodes.Get(slim.Key{Name: p.Spec.NodeName.String()})
	if entry.Encryption.Key, ok = s.encryption.key(n, known); !ok {
		return entry, false
	}
	return s.fields.keep(entry), true
}

// encryption is how agents encrypt what they send to other nodes.
type encryption struct{ wireGuard, ipsec bool }

// wireGuardKey stands for WireGuard, whatever the CiliumNode has.
const wireGuardKey = 255

// key is the number by which agents find the key for a pod, 0 for none. With IPsec it is that of the node, without whose CiliumNode no
// entry is right (CES-31).
func (e encryption) key(n *ciliumio.Node, known bool) (key int, ok bool) {
	switch {
	case e.wireGuard:
		return wireGuardKey, true
	case !e.ipsec:
		return 0, true
	case !known:
		return 0, false
	}
	return n.Spec.Encryption.Key, true
}

const keyPath = "spec.encryption"

// undecodable is true for undecodable pods, and for pods on undecodable nodes.
func (s *podSource) undecodable(key slim.Key) bool {
	v := s.stores.Load()
	p, ok := v.pods.Get(key)
	if !ok || !hasEndpoint(p) {
		return !ok && v.pods.Hides(key)
	}
	node := slim.Key{Name: p.Spec.NodeName.String()}
	n, known := v.nodes.Get(node)
	return known && n.CannotDecode(keyPath) || !known && v.nodes.Hides(node)
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

func (s *podSource) awaitFresh(ctx context.Context) error { return s.pods.WaitForFresh(ctx) }
