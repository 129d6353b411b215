// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package ciliumio

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"iter"
	"net/netip"

	kjson "sigs.k8s.io/json"

	v2 "github.com/skep-operator/skep/resources/api/v2"
	"github.com/skep-operator/skep/resources/stream/slim"
)

// EndpointNetworking is where an endpoint is reached, in 24 bytes and those of
// its addresses. What cannot be read as an address is kept as text, so that it
// can be copied as it is. The zero value is that of an endpoint whose agent has
// not told yet; one without addresses is another.
type EndpointNetworking struct {
	packed string // "" while it is not known; else one pair after the other
	node   slim.String
}

// PackNetworking returns what n says; nil says nothing.
func PackNetworking(n *v2.EndpointNetworking) EndpointNetworking {
	if n == nil {
		return EndpointNetworking{}
	}
	packed := []byte{known}
	for _, pair := range n.Addressing {
		packed = appendAddress(appendAddress(packed, pair.IPv4), pair.IPv6)
	}
	return EndpointNetworking{packed: string(packed), node: slim.MakeString(n.NodeIP)}
}

// IsZero reports whether the agent has not told yet where the endpoint is.
func (n EndpointNetworking) IsZero() bool { return n.packed == "" }

// API returns the networking as objects have it, nil if it is not known.
func (n EndpointNetworking) API() *v2.EndpointNetworking {
	if n.IsZero() {
		return nil
	}
	full := &v2.EndpointNetworking{Addressing: []v2.AddressPair{}, NodeIP: n.node.String()}
	for rest := n.packed[1:]; rest != ""; {
		var pair v2.AddressPair
		pair.IPv4, rest = nextAddress(rest)
		pair.IPv6, rest = nextAddress(rest)
		full.Addressing = append(full.Addressing, pair)
	}
	return full
}

// Addresses yields those that can be read, in their order.
func (n EndpointNetworking) Addresses() iter.Seq[slim.Addr] {
	return func(yield func(slim.Addr) bool) {
		if n.IsZero() {
			return
		}
		var text string
		for rest := n.packed[1:]; rest != ""; {
			text, rest = nextAddress(rest)
			if a := slim.ParseAddr(text); a.IsValid() && !yield(a) {
				return
			}
		}
	}
}

// MarshalJSON implements json.Marshaler.
func (n EndpointNetworking) MarshalJSON() ([]byte, error) { return json.Marshal(n.API()) }

// UnmarshalJSON implements json.Unmarshaler.
func (n *EndpointNetworking) UnmarshalJSON(data []byte) error {
	if err := checkSize(data); err != nil {
		return err
	}
	var full *v2.EndpointNetworking
	if err := kjson.UnmarshalCaseSensitivePreserveInts(data, &full); err != nil {
		return err
	}
	*n = PackNetworking(full)
	return nil
}

// maxPart bounds what is read of an endpoint's addresses, of its ports, and of its owners, in bytes of JSON. An agent writes one pair of addresses, the
// ports of a pod, and the pod; entries of many that are larger would be in memory several times while slices are written.
const maxPart = 32 << 10

func checkSize(data []byte) error {
	if len(data) > maxPart {
		return fmt.Errorf("it has %d bytes, and no endpoint needs more than %d", len(data), maxPart)
	}
	return nil
}

// How an address is packed: a byte, and what it says.
const (
	none   = 0 // nothing
	asIPv4 = 4 // 4 bytes
	asIPv6 = 6 // 16 bytes
	asText = 1 // a length and so many bytes
	known  = 7 // begins the addresses, which may be none
)

func appendAddress(b []byte, text string) []byte {
	if text == "" {
		return append(b, none)
	}
	if a, err := netip.ParseAddr(text); err == nil && a.Zone() == "" && a.String() == text {
		if a.Is4() {
			return append(append(b, asIPv4), a.AsSlice()...)
		}
		return append(append(b, asIPv6), a.AsSlice()...)
	}
	b = binary.AppendUvarint(append(b, asText), uint64(len(text)))
	return append(b, text...)
}

// nextAddress cuts the first address off packed.
func nextAddress(packed string) (text, rest string) {
	kind, packed := packed[0], packed[1:]
	switch kind {
	case asIPv4:
		a, _ := netip.AddrFromSlice([]byte(packed[:4]))
		return a.String(), packed[4:]
	case asIPv6:
		a, _ := netip.AddrFromSlice([]byte(packed[:16]))
		return a.String(), packed[16:]
	case asText:
		size, n := binary.Uvarint([]byte(packed))
		end := n + int(size)
		return packed[n:end], packed[end:]
	}
	return "", packed
}
