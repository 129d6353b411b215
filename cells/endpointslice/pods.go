// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package endpointslice

import (
	"context"
	"log/slog"
	"maps"
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
	refusals   *refusals
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

func newPodSource(pods stream.Resource[slim.Pod], nodes stream.Resource[ciliumio.Node], a identity.Assignments, shared cluster.Config, events *k8s.Events, log *slog.Logger) source {
	return &podSource{
		fields: fieldsOf(shared), encryption: encryption{shared.EnableWireguard, shared.EnableIPsec},
		pods: pods, nodes: nodes, identities: a, refusals: newRefusals(events, log),
	}
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
	handle = s.reporting(&v, handle)
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return s.watchPods(ctx, handle, synced) })
	g.Go(func() error { return s.watchNodes(ctx, handle) })
	g.Go(func() error { return s.watchIdentities(ctx, changed, handle) })
	return g.Wait()
}

// reporting handles endpoints, and reports what of their pods' statuses does not count.
func (s *podSource) reporting(v *podStores, handle func(slim.Key, k8s.Trigger)) func(slim.Key, k8s.Trigger) {
	return func(key slim.Key, trigger k8s.Trigger) {
		handle(key, trigger)
		if p, ok := v.pods.Get(key); ok {
			s.refusals.set(p, v.refused(p))
		}
		if _, is := v.pods.Get(key); !is { // it may have gone meanwhile
			s.refusals.forget(key)
		}
	}
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

// nodeState is what entries of pods have of a CiliumNode.
type nodeState struct {
	known     bool
	key       int
	addresses ciliumio.NodeAddresses
	undecoded bool
}

func stateOf(ch stream.Change[ciliumio.Node]) (n nodeState) {
	if ch.Kind == stream.Upsert {
		n = nodeState{true, ch.Object.Spec.Encryption.Key, ch.Object.Spec.Addresses, ch.Object.CannotDecode(keyPath, addressesPath)}
	}
	return n
}

// watchNodes handles the pods of nodes whose key or addresses have changed, and those that show an address which a node has now, or no more.
func (s *podSource) watchNodes(ctx context.Context, handle func(slim.Key, k8s.Trigger)) error {
	states, changed, synced := map[string]nodeState{}, map[slim.Addr]struct{}{}, false
	for batch := range s.nodes.Changes(ctx, stream.WithSubscriberName("endpointslice.keys")) {
		for _, ch := range batch.Changes {
			before, now := states[ch.Key.Name], stateOf(ch)
			if states[ch.Key.Name] = now; now == (nodeState{}) {
				delete(states, ch.Key.Name)
			}
			if before == now {
				continue
			}
			if before.addresses != now.addresses {
				maps.Insert(changed, differing(ownAddresses(before.addresses), ownAddresses(now.addresses)))
			}
			trigger := ciliumio.Nodes.Trigger(ch.Object)
			for p := range stream.ByIndex(s.stores.Load().pods, podsByNode, slim.MakeString(ch.Key.Name)) {
				handle(p.Key(), trigger)
			}
		}
		if synced = synced || batch.Synced; synced && len(changed) > 0 {
			s.handleThoseAt(changed, handle)
			clear(changed)
		}
	}
	return ctx.Err()
}

// handleThoseAt handles the pods whose status shows one of some addresses of nodes. Nodes get and lose theirs so rarely that all pods are
// looked through, which costs no memory.
func (s *podSource) handleThoseAt(addresses map[slim.Addr]struct{}, handle func(slim.Key, k8s.Trigger)) {
	for p := range s.stores.Load().pods.All() {
		for _, of := range p.Status.PodIPs {
			if _, at := addresses[of.IP]; at && !p.Spec.HostNetwork {
				handle(p.Key(), k8s.Trigger{Kind: ciliumio.Nodes.Name()})
				break
			}
		}
	}
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
	if !ok || !v.hasEndpoint(p) {
		return entry, false
	}
	id := last
	if n, made := s.identities.ForPod(types.NamespacedName(key)); made {
		id = int64(n)
	}
	n, known := v.nodes.Get(slim.Key{Name: p.Spec.NodeName.String()})
	if id == 0 || !known {
		return entry, false
	}
	host, ok := v.nodeAddress(p, n)
	pair := v.addressing(p)
	if !ok || pair == (v2.AddressPair{}) {
		return entry, false
	}
	entry = v2alpha1.CoreCiliumEndpoint{
		Name: p.Name, IdentityID: id,
		Networking: &v2.EndpointNetworking{Addressing: []v2.AddressPair{pair}},
		NamedPorts: ciliumio.NamedPorts{NamedPorts: p.Spec.NamedPorts}.API(), ServiceAccount: p.Spec.ServiceAccountName.String(), PodUID: p.UID.String(),
	}
	if host.IsValid() {
		entry.Networking.NodeIP = host.String()
	}
	entry.Encryption.Key = s.encryption.key(n)
	return s.fields.keep(entry), true
}

// encryption is how agents encrypt what they send to other nodes.
type encryption struct{ wireGuard, ipsec bool }

// wireGuardKey stands for WireGuard, whatever the CiliumNode has.
const wireGuardKey = 255

// key is the number by which agents find the key for a pod, 0 for none. With IPsec it is that of the node (CES-31).
func (e encryption) key(n *ciliumio.Node) int {
	switch {
	case e.wireGuard:
		return wireGuardKey
	case !e.ipsec:
		return 0
	}
	return n.Spec.Encryption.Key
}

const keyPath = "spec.encryption"

// undecodable is true for undecodable pods, and for pods on undecodable nodes. Nodes that are not known count as such: who creates a pod may
// name any (CES-36).
func (s *podSource) undecodable(key slim.Key) bool {
	v := s.stores.Load()
	p, ok := v.pods.Get(key)
	if !ok || !v.hasEndpoint(p) {
		return !ok && v.pods.Hides(key)
	}
	n, known := v.nodes.Get(slim.Key{Name: p.Spec.NodeName.String()})
	return !known || n.CannotDecode(keyPath, addressesPath)
}

// hasEndpoint reports whether a pod has an endpoint of its own, and an address.
func (v *podStores) hasEndpoint(p *slim.Pod) bool {
	return isConnected(p) && v.hasAddress(p)
}

// isConnected reports whether a pod is on a node, and has a network of its own.
func isConnected(p *slim.Pod) bool {
	switch p.Status.Phase.String() {
	case "Succeeded", "Failed":
		return false
	}
	return !p.Spec.HostNetwork && p.Spec.NodeName != (slim.String{})
}

func (s *podSource) awaitFresh(ctx context.Context) error {
	both, ctx := errgroup.WithContext(ctx)
	both.Go(func() error { return s.pods.WaitForFresh(ctx) })
	both.Go(func() error { return s.nodes.WaitForFresh(ctx) }) // an address of a node is left out
	return both.Wait()
}
