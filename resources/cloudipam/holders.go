// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package cloudipam

import (
	"slices"

	"github.com/skep-operator/skep/resources/stream"
)

// holders are the instances of which the cloud shows an address or a prefix, by its key. Nearly all have one.
type holders struct {
	first map[string]string
	more  map[string][]string
}

func newHolders() holders { return holders{first: map[string]string{}, more: map[string][]string{}} }

func (h holders) add(key, instance string) {
	if _, has := h.first[key]; has {
		h.more[key] = append(h.more[key], instance)
		return
	}
	h.first[key] = instance
}

func (h holders) remove(key, instance string) {
	all := h.besides(key, instance)
	delete(h.first, key)
	delete(h.more, key)
	for _, id := range all {
		h.add(key, id)
	}
}

// besides are the other instances that have it.
func (h holders) besides(key, instance string) (ids []string) {
	first, has := h.first[key]
	if !has {
		return nil
	}
	if first != instance {
		ids = append(ids, first)
	}
	for _, id := range h.more[key] {
		if id != instance {
			ids = append(ids, id)
		}
	}
	return ids
}

// keys are those of all that the cloud shows of an instance, each once.
func (o observed) keys() map[string]bool {
	all := map[string]bool{}
	if o.Instance == nil {
		return all
	}
	for _, of := range o.Interfaces {
		for _, list := range [][]string{of.Addresses, of.Own, of.IPv6Prefixes} {
			for _, text := range list {
				if key, ok := keyOf(text); ok {
					all[key] = true
				}
			}
		}
	}
	return all
}

// holdsIn reports whether the cloud shows an address or prefix of an interface of an instance in a network.
func (o observed) holdsIn(network, key string) bool {
	if o.Instance == nil {
		return false
	}
	isIt := func(text string) bool { of, ok := keyOf(text); return ok && of == key }
	return slices.ContainsFunc(o.Interfaces, func(of Interface) bool {
		return (network == "" || of.Network == "" || of.Network == network) &&
			(slices.ContainsFunc(of.Addresses, isIt) || slices.ContainsFunc(of.Own, isIt) || slices.ContainsFunc(of.IPv6Prefixes, isIt))
	})
}

// sharers says of which other instances the cloud shows an address or prefix of an instance: of one in the same network, and of any.
func (s *cloudState) sharers(instance, network, text string) (near bool, all []string) {
	key, ok := keyOf(text)
	if !ok {
		return false, nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	all = s.holders.besides(key, instance)
	near = slices.ContainsFunc(all, func(id string) bool { return s.instances[id].holdsIn(network, key) })
	return near, all
}

// isShared says which addresses and prefixes of an instance the cloud shows of another one, too: one of the same network, or one that is
// a node of this cluster. Networks of others may have the same ranges.
func (c *controller) isShared(instance string) func(of Interface, text string) bool {
	return func(of Interface, text string) bool {
		near, all := c.cloud.sharers(instance, of.Network, text)
		return near || slices.ContainsFunc(all, c.isOfNode)
	}
}

// isOfNode reports whether an instance is that of a CiliumNode.
func (c *controller) isOfNode(instance string) bool {
	for range stream.ByIndex(c.nodes, byInstance, instance) {
		return true
	}
	return false
}
