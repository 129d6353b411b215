// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package multipool

import (
	"fmt"
	"net/netip"
	"regexp"
	"strings"

	"github.com/skep-operator/skep/resources/domain/alloc"
	"github.com/skep-operator/skep/resources/domain/cidr"
	"github.com/skep-operator/skep/resources/stream/ciliumio"
	"github.com/skep-operator/skep/runtime/printable"
)

// The text in a status is bounded, since it repeats values of the node.
const (
	maxLine  = 512 // bytes
	maxLines = 16
	// maxHolders is how many CIDRs an Event names that a node lost, with who has them.
	maxHolders = 5
)

func bounded(line string) string {
	line = printable.Line(strings.ReplaceAll(line, "\n", " "))
	if n := len(line); n > maxLine {
		return fmt.Sprintf("%s… (%d bytes)", strings.ToValidUTF8(line[:maxLine], ""), n)
	}
	return line
}

// Texts that the original has are the same byte for byte: users search for them.

func textUnparsable(pool, text string) string {
	return fmt.Sprintf("failed to parse CIDR of pool %q: invalid CIDR address: %s", pool, text)
}

func textNoPool(pool string) string { return "cannot reuse from non-existing pool: " + pool }

func textOrphan(c poolCIDR) string {
	return fmt.Sprintf("unable to find pool %s, prefix %s is still allocated to the node but is marked as orphan", c.pool, c.cidr)
}

func textOutside(c poolCIDR) string {
	return fmt.Sprintf("unable to reuse from pool %s: cidr %s is not part of the requested pool", c.pool, c.cidr)
}

func textTaken(c poolCIDR) string {
	return fmt.Sprintf("unable to reuse from pool %s: cidr %s has already been allocated", c.pool, c.cidr)
}

func textHeld(c netip.Prefix, by string) string { return fmt.Sprintf("CiliumNode %s has %s", by, c) }

// errorPrefix begins the errors of nodes since 1.20.
const errorPrefix = "ipam-multi-pool-sync allocation failed: "

var taken = regexp.MustCompile(`(?m)^(?:ipam-multi-pool-sync allocation failed: )?unable to reuse from pool (.+): cidr (\S+) has already been allocated$`)

// lostIn are the CIDRs of which a status says that they were taken.
func lostIn(text string) (list []poolCIDR) {
	for _, match := range taken.FindAllStringSubmatch(text, -1) {
		if c, ok := cidr.Parse(match[2]); ok {
			list = append(list, poolCIDR{match[1], c})
		}
	}
	return list
}

func textOverlap(c poolCIDR, own netip.Prefix) string {
	return fmt.Sprintf("unable to reuse from pool %s: cidr %s overlaps %s, which the node has, too", c.pool, c.cidr, own)
}

// textShownElsewhere must not be taken for one of textTaken: the node keeps the CIDR.
func textShownElsewhere(c poolCIDR, other netip.Prefix, by string) string {
	return fmt.Sprintf("cidr %s of pool %s overlaps %s, which the older CiliumNode %s shows outside of its pools", c.cidr, c.pool, other, by)
}

func textShownTwice(own, other netip.Prefix, by string) string {
	return fmt.Sprintf("cidr %s, which is shown outside of spec.ipam.pools, overlaps %s of the older CiliumNode %s", own, other, by)
}

func textRefused(node, pool string, family alloc.Family, reason string) string {
	return fmt.Sprintf("failed to allocate %s address for node %q from pool %q: %s", strings.ToLower(family.String()), node, pool, reason)
}

const textEmpty = "pool empty"

var textCut = fmt.Sprintf("the node lists more than %d CIDRs: the others are not believed", ciliumio.MaxCIDRs)

func textAbsurd(needed int64, has int) string {
	if has > 0 {
		return fmt.Sprintf("%d addresses are more than %d blocks together with the %d that the node has: correct spec.ipam.pools.requested", needed, maxBlocks, has)
	}
	return fmt.Sprintf("%d addresses are more than %d blocks: correct spec.ipam.pools.requested", needed, maxBlocks)
}

func textUndecidable(by string) string {
	if by == "" {
		return "waiting: a CiliumNode cannot be decoded that does not say its name; it may have any CIDR"
	}
	return fmt.Sprintf("waiting: spec.ipam.pools.allocated of CiliumNode %s cannot be decoded, it may have any CIDR; repair or delete it", by)
}

// reason is that of the Event about a refusal.
func (r refusal) reason() string {
	switch r.kind {
	case exhausted:
		return "PodCIDRPoolExhausted"
	case undecidable:
		return "PodCIDRUndecided"
	}
	return "PodCIDRRefused"
}
