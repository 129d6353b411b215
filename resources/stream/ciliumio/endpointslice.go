// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package ciliumio

import (
	"encoding/binary"
	"encoding/json"
	"hash/maphash"
	"strings"

	kjson "sigs.k8s.io/json"

	v2 "github.com/skep-operator/skep/resources/api/v2"
	"github.com/skep-operator/skep/resources/api/v2alpha1"
	"github.com/skep-operator/skep/resources/stream"
	"github.com/skep-operator/skep/resources/stream/slim"
)

// EndpointSlices is the stream of CiliumEndpointSlices.
var EndpointSlices = stream.Custom[EndpointSlice](v2alpha1.CiliumEndpointSliceResource).OfKind("CiliumEndpointSlice")

// EndpointSlice is what duties read of a CiliumEndpointSlice.
type EndpointSlice struct {
	EndpointSliceMeta `json:"metadata"`
	slim.Undecoded    `json:"-"`
	// Of is the namespace of the endpoints; the slice itself has none.
	Of        slim.String    `json:"namespace"`
	Endpoints SliceEndpoints `json:"endpoints"`
}

// EndpointSliceMeta is the metadata of a CiliumEndpointSlice.
type EndpointSliceMeta struct {
	slim.Meta
	CreationTimestamp slim.Time `json:"creationTimestamp"`
	DeletionTimestamp slim.Time `json:"deletionTimestamp"`
}

// SliceEndpoint is an endpoint as a slice has it. Of what the endpoints
// themselves say, it keeps no second copy.
type SliceEndpoint struct {
	Name       string
	IdentityID int64
	// Sum stands for all that the slice says of the endpoint: see SumOf.
	Sum uint64
}

// SliceEndpointOf is the endpoint e of a slice.
func SliceEndpointOf(e *v2alpha1.CoreCiliumEndpoint) SliceEndpoint {
	return SliceEndpoint{Name: e.Name, IdentityID: e.IdentityID, Sum: SumOf(e)}
}

// SliceEndpoints are all endpoints of a slice, in its order.
type SliceEndpoints []SliceEndpoint

// UnmarshalJSON implements json.Unmarshaler. All names share one piece of memory:
// a slice comes and goes as a whole.
func (s *SliceEndpoints) UnmarshalJSON(data []byte) error {
	var full []v2alpha1.CoreCiliumEndpoint
	if err := kjson.UnmarshalCaseSensitivePreserveInts(data, &full); err != nil {
		return err
	}
	var packed strings.Builder
	size := 0
	for i := range full {
		size += len(full[i].Name)
	}
	packed.Grow(size)
	*s = make(SliceEndpoints, len(full))
	for i := range full {
		e := &(*s)[i]
		*e = SliceEndpointOf(&full[i])
		packed.WriteString(e.Name)
		e.Name = packed.String()[packed.Len()-len(e.Name):]
	}
	return nil
}

// MarshalJSON implements json.Marshaler, for what is known of the endpoint.
func (s SliceEndpoint) MarshalJSON() ([]byte, error) {
	return json.Marshal(v2alpha1.CoreCiliumEndpoint{Name: s.Name, IdentityID: s.IdentityID})
}

var sumSeed = maphash.MakeSeed()

// SumOf is the same for two endpoints that say the same on the wire, within a
// process, and with a chance of 2^-64 for two that do not. Addresses and ports
// count in their order.
func SumOf(e *v2alpha1.CoreCiliumEndpoint) uint64 {
	var h maphash.Hash
	h.SetSeed(sumSeed)
	var scratch [binary.MaxVarintLen64]byte
	number := func(n int64) { _, _ = h.Write(scratch[:binary.PutVarint(scratch[:], n)]) }
	text := func(s string) {
		number(int64(len(s)))
		_, _ = h.WriteString(s)
	}
	text(e.Name)
	number(e.IdentityID)
	number(int64(e.Encryption.Key))
	if n := e.Networking; n != nil {
		text(n.NodeIP)
		number(int64(len(n.Addressing)))
		for _, pair := range n.Addressing {
			text(pair.IPv4)
			text(pair.IPv6)
		}
	} else {
		number(-1)
	}
	number(int64(len(e.NamedPorts)))
	for _, p := range e.NamedPorts {
		text(p.Name)
		number(int64(p.Port))
		text(p.Protocol)
	}
	text(e.ServiceAccount)
	text(e.PodUID)
	return h.Sum64()
}

// Slice returns what a slice of any release says of the endpoint; false if it says nothing: the
// agent has not told its identity, or where it is.
func (e *Endpoint) Slice() (s v2alpha1.CoreCiliumEndpoint, ok bool) {
	if e.Status.Identity == nil || e.Status.Networking.IsZero() {
		return s, false
	}
	return v2alpha1.CoreCiliumEndpoint{
		Name: e.Name, IdentityID: e.Status.Identity.ID,
		Networking: e.Status.Networking.API(),
		Encryption: v2.EncryptionSpec{Key: e.Status.Encryption.Key},
		NamedPorts: e.Status.NamedPorts.API(), ServiceAccount: e.Status.ServiceAccount.String(), PodUID: e.podUID(),
	}, true
}

// podUID is the uid of the first owner that is a pod, "" for none.
func (e *Endpoint) podUID() string {
	for _, o := range e.Owners {
		if o.Kind.String() == "Pod" {
			return o.UID.String()
		}
	}
	return ""
}
