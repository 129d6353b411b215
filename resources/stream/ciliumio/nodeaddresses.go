// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package ciliumio

import (
	"encoding/json"
	"iter"
	"net/netip"
	"slices"

	kjson "sigs.k8s.io/json"

	v2 "github.com/skep-operator/skep/resources/api/v2"
	"github.com/skep-operator/skep/resources/domain/cidr"
	"github.com/skep-operator/skep/resources/stream/slim"
)

// NodeAddresses are the addresses of a node at which others reach it, in their order, in 16 bytes and 5 or 17 for each. Host names, and what is no address of a host, are left out, and so is what
// follows the first 64: see docs/wire/endpointslice.md. Values are immutable, and equal with == if they say the same.
type NodeAddresses struct{ packed string }

// nodeAddressTypes are those that are kept. A packed address begins with the place of its type, and asIPv6 if it is one.
var nodeAddressTypes = []v2.NodeAddressType{v2.NodeAddressInternalIP, v2.NodeAddressExternalIP}

// maxNodeAddresses is how many addresses of a node are kept: some clouds list all of its interfaces.
const maxNodeAddresses = 64

// isIPv6 marks the type of a packed address of 16 bytes.
const isIPv6 = 0x80

// MakeNodeAddresses packs addresses.
func MakeNodeAddresses(list ...v2.NodeAddress) NodeAddresses {
	var packed []byte
	kept := 0
	for _, of := range list {
		kind := slices.Index(nodeAddressTypes, of.Type)
		a, ok := cidr.ParseHost(of.IP)
		if kind < 0 || !ok || kept == maxNodeAddresses {
			continue
		}
		kept++
		mark := byte(kind)
		if a.Is6() {
			mark |= isIPv6
		}
		packed = append(append(packed, mark), a.AsSlice()...)
	}
	return NodeAddresses{string(packed)}
}

// All yields the addresses with their types, in their order.
func (n NodeAddresses) All() iter.Seq2[v2.NodeAddressType, slim.Addr] {
	return func(yield func(v2.NodeAddressType, slim.Addr) bool) {
		for rest := n.packed; rest != ""; {
			kind, size := rest[0]&^isIPv6, 4
			if rest[0]&isIPv6 != 0 {
				size = 16
			}
			a, _ := netip.AddrFromSlice([]byte(rest[1 : 1+size]))
			rest = rest[1+size:]
			if !yield(nodeAddressTypes[kind], slim.Addr{Addr: a}) {
				return
			}
		}
	}
}

// MarshalJSON implements json.Marshaler.
func (n NodeAddresses) MarshalJSON() ([]byte, error) {
	list := []v2.NodeAddress{}
	for kind, a := range n.All() {
		list = append(list, v2.NodeAddress{Type: kind, IP: a.String()})
	}
	return json.Marshal(list)
}

// UnmarshalJSON implements json.Unmarshaler.
func (n *NodeAddresses) UnmarshalJSON(data []byte) error {
	var list []v2.NodeAddress
	if err := kjson.UnmarshalCaseSensitivePreserveInts(data, &list); err != nil {
		return err
	}
	*n = MakeNodeAddresses(list...)
	return nil
}
