// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package endpointslice

import (
	"fmt"
	"iter"
	"slices"
	"strings"

	v2 "github.com/skep-operator/skep/resources/api/v2"
	"github.com/skep-operator/skep/resources/stream"
	"github.com/skep-operator/skep/resources/stream/ciliumio"
	"github.com/skep-operator/skep/resources/stream/slim"
)

// The status of a pod is written by its kubelet, and by all others who may write pods/status in its namespace. Agents of all nodes map
// the addresses in a slice to the identity of the pod, so those of others do not get there (CES-35), nor does a node that is not the pod's
// (CES-36).

const addressesPath = "spec.addresses"

// nodesByAddress finds the node that has an address which no pod can have.
var nodesByAddress = stream.NewIndex("address", func(n *ciliumio.Node, add func(slim.Addr)) {
	for a := range ownAddresses(n.Spec.Addresses) {
		add(a)
	}
})

// ownAddresses are the first of each family at which other nodes reach a node. Some clouds list addresses of pods behind these, and that of the agent is one of
// the block of the node: where another CNI gives addresses to pods, it may be a pod's, too.
func ownAddresses(all ciliumio.NodeAddresses) map[slim.Addr]struct{} {
	first := map[bool]slim.Addr{}
	for _, kind := range []v2.NodeAddressType{v2.NodeAddressInternalIP, v2.NodeAddressExternalIP} {
		for of, a := range all.All() {
			if _, has := first[a.Is4()]; of == kind && !has {
				first[a.Is4()] = a
			}
		}
	}
	own := map[slim.Addr]struct{}{}
	for _, a := range first {
		own[a] = struct{}{}
	}
	return own
}

// differing are the addresses that only one of two sets has.
func differing(a, b map[slim.Addr]struct{}) iter.Seq2[slim.Addr, struct{}] {
	return func(yield func(slim.Addr, struct{}) bool) {
		for _, pair := range [][2]map[slim.Addr]struct{}{{a, b}, {b, a}} {
			for of := range pair[0] {
				if _, has := pair[1][of]; !has && !yield(of, struct{}{}) {
					return
				}
			}
		}
	}
}

// addressing is the pod's first address of each family that counts.
func (v *podStores) addressing(p *slim.Pod) (pair v2.AddressPair) {
	for _, of := range p.Status.PodIPs {
		text := &pair.IPv4
		if of.IP.Is6() {
			text = &pair.IPv6
		}
		if *text == "" && v.counts(of.IP) {
			*text = of.IP.String()
		}
	}
	return pair
}

// hasAddress reports whether a pod has an address that counts.
func (v *podStores) hasAddress(p *slim.Pod) bool {
	return slices.ContainsFunc(p.Status.PodIPs, func(of slim.PodIP) bool { return v.counts(of.IP) })
}

// counts reports whether an address can be that of a pod.
func (v *podStores) counts(a slim.Addr) bool {
	return isPodAddress(a) && stream.CountByIndex(v.nodes, nodesByAddress, a) == 0
}

// isPodAddress reports whether a pod of any cluster can have an address.
func isPodAddress(a slim.Addr) bool {
	return a.IsValid() && a.Zone() == "" && !a.Is4In6() && a.IsGlobalUnicast()
}

// nodeAddress is the address of the node that a pod is on: the one that its status shows, if the CiliumNode lists that, or none. Otherwise
// it is the node's own, of the same family if there is one. A node that lists none may have any that is not another's; false is none.
func (v *podStores) nodeAddress(p *slim.Pod, n *ciliumio.Node) (a slim.Addr, ok bool) {
	shown := p.Status.HostIP
	if !shown.IsValid() {
		return shown, true // agents leave such an entry alone
	}
	var own slim.Addr
	best := 0
	for kind, a := range n.Spec.Addresses.All() {
		if a == shown {
			return a, true
		}
		rank := 1
		if a.Is4() == shown.Is4() {
			rank += 2
		}
		if kind == v2.NodeAddressInternalIP {
			rank++
		}
		if rank > best {
			own, best = a, rank
		}
	}
	if best > 0 {
		return own, true
	}
	return shown, v.counts(shown)
}

// mostRefused is how many addresses of a pod an Event names.
const mostRefused = 3

// refused is what of a pod's status does not count, "" for nothing.
func (v *podStores) refused(p *slim.Pod) string {
	if !isConnected(p) {
		return ""
	}
	var parts []string
	for _, of := range p.Status.PodIPs {
		if why := v.whyNot(of.IP); why != "" {
			parts = append(parts, why)
		}
	}
	if n, known := v.nodes.Get(slim.Key{Name: p.Spec.NodeName.String()}); known && !n.CannotDecode(addressesPath) {
		a, ok := v.nodeAddress(p, n)
		switch shown := p.Status.HostIP; {
		case !ok:
			parts = append(parts, fmt.Sprintf("hostIP %s, which is not that of node %s", shown, n.Name))
		case a != shown:
			parts = append(parts, fmt.Sprintf("hostIP %s, which is not that of node %s: %s is", shown, n.Name, a))
		}
	}
	if more := len(parts) - mostRefused; more > 0 {
		parts = append(parts[:mostRefused], fmt.Sprintf("and %d more", more))
	}
	return strings.Join(parts, "; ")
}

func (v *podStores) whyNot(a slim.Addr) string {
	switch {
	case !a.IsValid():
		return "a text that is no address"
	case !isPodAddress(a):
		return fmt.Sprintf("%s, which no pod can have", a)
	}
	for n := range stream.ByIndex(v.nodes, nodesByAddress, a) {
		return fmt.Sprintf("%s, which is that of node %s", a, n.Name)
	}
	return ""
}
