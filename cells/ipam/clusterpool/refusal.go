// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package clusterpool

import (
	"fmt"
	"net/netip"
	"strings"
)

// refusal is why a CIDR that a node lists is not allocated to it, or why it gets none. The zero refusal is none.
type refusal struct {
	kind   kind
	text   string // of status.ipam.operator-status
	holder string // for the Event: who has what is refused, "" if no node has
}

type kind uint8

const (
	_                 kind = iota
	invalid                // not a CIDR
	noAllocator            // its family is disabled
	notConfigured          // outside the cluster CIDRs
	alreadyAllocated       // a part is allocated to another node
	poolFull               // the same, and no block of its cluster CIDR is free
	oversized              // it contains a whole cluster CIDR
	overlapping            // it overlaps another of the node's
	surplus                // the node has another block of this pool
	shownElsewhere         // an older node shows a part of it, or holds a part of what this one shows
	conflictingChange      // the node was allocated others
	exhausted              // no block is free
	undecodedNode          // the CIDRs of another node cannot be decoded
	noFamily               // all families are disabled
)

// maxText bounds the text in the status, which repeats values of the node.
const maxText = 1 << 10

func refuse(k kind, format string, args ...any) refusal {
	text := fmt.Sprintf(format, args...)
	if n := len(text); n > maxText {
		text = fmt.Sprintf("%s… (%d bytes)", strings.ToValidUTF8(text[:maxText], ""), n)
	}
	return refusal{kind: k, text: text}
}

// Texts that the original has are the same byte for byte: users search for them.

func refuseInvalid(text string) refusal { return refuse(invalid, "invalid CIDR address: %s", text) }

func refuseFamily(family int, cidrs []netip.Prefix) refusal {
	return refuse(noAllocator, "unable to allocate CIDR %s since allocator for %s addresses does not exist", cidrs, familyNames[family])
}

func refuseNotConfigured(c netip.Prefix) refusal {
	return refuse(notConfigured, "allocator not configured for the requested CIDR %s", c)
}

func refuseTaken(c netip.Prefix, of *pool, by string) refusal {
	r := refuse(alreadyAllocated, "requested CIDR (%s) is already allocated", c)
	if of.full() {
		r = refuse(poolFull, "allocator %s full", of)
	}
	r.holder = fmt.Sprintf("CiliumNode %s has %s", by, c)
	return r
}

func refuseOversized(c netip.Prefix, p *pool) refusal {
	return refuse(oversized, "requested CIDR (%s) contains all of %s", c, p)
}

func refuseOverlap(c, other netip.Prefix) refusal {
	return refuse(overlapping, "requested CIDR (%s) overlaps %s, which the node has, too", c, other)
}

func refuseSurplus(c netip.Prefix, p *pool) refusal {
	return refuse(surplus, "requested CIDR (%s) is a second one of %s: a node is given one", c, p)
}

func refuseShownBeyond(c netip.Prefix, p *pool) refusal {
	return refuse(surplus, "CIDR %s, which the node shows outside of spec.ipam.podCIDRs, is beyond the %d blocks of %s, or parts of %d, for which it is believed", c, maxShown, p, p.mostParts())
}

func refuseShown(c, other netip.Prefix, by string) refusal {
	return refuse(shownElsewhere, "CIDR %s overlaps %s, which the older CiliumNode %s has, too", c, other, by)
}

func refuseChange(holds, cidrs []netip.Prefix) refusal {
	return refuse(conflictingChange, "node has CIDRs allocated (%s) that conflict with requested CIDRs %s", holds, cidrs)
}

func refuseUndecoded(node string) refusal {
	if node == "" {
		return refuse(undecodedNode, "waiting: a CiliumNode cannot be decoded that does not say its name; it may have any CIDR")
	}
	return refuse(undecodedNode, "waiting: spec.ipam.podCIDRs of CiliumNode %s cannot be decoded, it may have any CIDR; repair or delete it", node)
}

func refuseNode(name string) refusal {
	return refuse(noFamily, "Unable to allocate node CIDR for node %s. IPAMInfo: {IPv4: [], IPv6: []}. Please check that your configuration is correct.", name)
}

var poolsExhausted = refuse(exhausted, "allocator full")

// eventReason is the reason of the Event about a refusal.
func (r refusal) eventReason() string {
	switch r.kind {
	case exhausted, poolFull:
		return "PodCIDRPoolExhausted"
	case undecodedNode:
		return "PodCIDRUndecided"
	}
	return "PodCIDRRefused"
}
