// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package ciliumio

import (
	"fmt"

	kjson "sigs.k8s.io/json"

	v2 "github.com/skep-operator/skep/resources/api/v2"
	"github.com/skep-operator/skep/resources/stream"
	"github.com/skep-operator/skep/resources/stream/slim"
)

// Endpoints is the stream of CiliumEndpoints.
var Endpoints = stream.Custom[Endpoint](v2.CiliumEndpointResource).OfKind("CiliumEndpoint")

// Endpoint is what duties read of a CiliumEndpoint.
type Endpoint struct {
	EndpointMeta   `json:"metadata"`
	slim.Undecoded `json:"-"`
	Status         EndpointStatus `json:"status"`
}

// EndpointMeta is the metadata of a CiliumEndpoint.
type EndpointMeta struct {
	slim.Meta
	Owners            EndpointOwners `json:"ownerReferences"`
	CreationTimestamp slim.Time      `json:"creationTimestamp"`
	DeletionTimestamp slim.Time      `json:"deletionTimestamp"`
}

// EndpointStatus is what the agent reports about an endpoint.
type EndpointStatus struct {
	Identity   *EndpointIdentity  `json:"identity"` // nil until the agent has found it
	Networking EndpointNetworking `json:"networking"`
	Encryption Encryption         `json:"encryption"`
	NamedPorts NamedPorts         `json:"named-ports"`
	// ServiceAccount is that of the pod; agents up to 1.18 do not tell it.
	ServiceAccount AccountName `json:"service-account"`
}

// maxName is how many bytes the name of an object, and its uid, have at most.
const maxName = 253

func checkName(size int) error {
	if size > maxName {
		return fmt.Errorf("it has %d bytes, and no name or uid has more than %d", size, maxName)
	}
	return nil
}

// AccountName is the name of a ServiceAccount. A longer text cannot be decoded: the definition has no bound, and it is in memory several times
// while slices are written.
type AccountName struct{ text slim.String }

// String returns the name.
func (n AccountName) String() string { return n.text.String() }

// MarshalText implements encoding.TextMarshaler.
func (n AccountName) MarshalText() ([]byte, error) { return n.text.MarshalText() }

// UnmarshalText implements encoding.TextUnmarshaler.
func (n *AccountName) UnmarshalText(text []byte) error {
	if err := checkName(len(text)); err != nil {
		return err
	}
	return n.text.UnmarshalText(text)
}

// EndpointOwners are the owners of an endpoint. More than 32 KiB of them cannot be decoded, nor a uid that none can be.
type EndpointOwners []slim.OwnerReference

// UnmarshalJSON implements json.Unmarshaler.
func (o *EndpointOwners) UnmarshalJSON(data []byte) error {
	if err := checkSize(data); err != nil {
		return err
	}
	var all []slim.OwnerReference
	if err := kjson.UnmarshalCaseSensitivePreserveInts(data, &all); err != nil {
		return err
	}
	for _, owner := range all {
		if err := checkName(len(owner.UID.String())); err != nil {
			return err
		}
	}
	*o = all
	return nil
}

// EndpointIdentity is the security identity of an endpoint.
type EndpointIdentity struct {
	ID int64 `json:"id"`
}

// Encryption says how traffic is encrypted: with which key, 0 for none.
type Encryption struct {
	Key int `json:"key"`
}
