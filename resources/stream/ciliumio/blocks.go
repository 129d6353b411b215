// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package ciliumio

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	v2 "github.com/skep-operator/skep/resources/api/v2"
	"github.com/skep-operator/skep/resources/domain/cidr"
)

// UsedCIDRs are the CIDRs of which the status of a node says that they are not released. Agents of old releases wrote it.
type UsedCIDRs []netip.Prefix

// UnmarshalJSON implements json.Unmarshaler. It takes what can be found in a value of another type.
func (u *UsedCIDRs) UnmarshalJSON(data []byte) error {
	*u = nil
	var states map[string]v2.PodCIDRState
	if json.Unmarshal(data, &states) != nil {
		*u = cidr.FindInJSON(data)
		return nil
	}
	for text, state := range states {
		if state.Status != v2.PodCIDRReleased {
			*u = append(*u, cidr.Find(text)...)
		}
	}
	slices.SortFunc(*u, netip.Prefix.Compare)
	return nil
}

// MarshalJSON implements json.Marshaler.
func (u UsedCIDRs) MarshalJSON() ([]byte, error) {
	states := map[string]v2.PodCIDRState{}
	for _, c := range u {
		states[c.String()] = v2.PodCIDRState{Status: v2.PodCIDRInUse}
	}
	return json.Marshal(states)
}

const (
	podCIDRsPath  = "spec.ipam.podCIDRs"
	allocatedPath = "spec.ipam.pools.allocated"
)

// PodBlocks returns the CIDRs of spec.ipam.podCIDRs, also those in what cannot be decoded, or is no CIDR.
func (n *Node) PodBlocks() []netip.Prefix {
	return slices.Concat(findInTexts(n.Spec.IPAM.PodCIDRs), findInRaw(n, "spec", "spec.ipam", podCIDRsPath))
}

// PoolBlocks returns the CIDRs of spec.ipam.pools.allocated, also those in what cannot be decoded, or is no CIDR.
func (n *Node) PoolBlocks() (found []netip.Prefix) {
	for _, of := range n.Spec.IPAM.Pools.Allocated {
		found = append(found, findInTexts(of.CIDRs)...)
	}
	lost, _ := n.UndecodedPoolBlocks()
	return append(found, lost...)
}

// UndecodedPoolBlocks returns the CIDRs in those parts of spec.ipam.pools.allocated that cannot be decoded. blind says that
// there is a part with none.
func (n *Node) UndecodedPoolBlocks() (found []netip.Prefix, blind bool) {
	paths := []string{"spec", "spec.ipam", "spec.ipam.pools", allocatedPath}
	parts := 0
	for i := range n.Spec.IPAM.Pools.Allocated {
		element := fmt.Sprintf("%s[%d]", allocatedPath, i)
		paths = append(paths, element, element+".cidrs")
		if n.RawField(element+".pool") != nil {
			parts++ // its CIDRs are decoded
		}
	}
	for _, path := range paths {
		if raw := n.RawField(path); raw != nil {
			parts++
			in := cidr.FindInJSON(raw)
			found, blind = append(found, in...), blind || len(in) == 0
		}
	}
	return found, n.CannotDecode(allocatedPath) && (blind || parts == 0) // a part that is too large is not kept
}

func findInTexts(texts []string) (found []netip.Prefix) {
	for _, text := range texts {
		if c, ok := cidr.Parse(text); ok {
			found = append(found, c)
		} else {
			found = append(found, cidr.Find(text)...)
		}
	}
	return found
}

func findInRaw(n *Node, paths ...string) (found []netip.Prefix) {
	for _, path := range paths {
		if raw := n.RawField(path); raw != nil {
			found = append(found, cidr.FindInJSON(raw)...)
		}
	}
	return found
}

// ignoreAnnotation has the operator leave the addresses of a node alone.
const ignoreAnnotation = "ipam.cilium.io/ignore"

// IgnoresIPAM reports whether a value of the annotation ipam.cilium.io/ignore says that the operator is to leave the addresses
// of the node alone.
func IgnoresIPAM(annotations map[string]string) bool {
	return strings.EqualFold(annotations[ignoreAnnotation], "true")
}

// IgnoresIPAM reports whether the operator is to leave the addresses of the node alone.
func (n *Node) IgnoresIPAM() bool {
	value, _ := n.Annotations.Lookup(ignoreAnnotation)
	return strings.EqualFold(value, "true")
}
