// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package ciliumio

import (
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
	Owners            []slim.OwnerReference `json:"ownerReferences"`
	CreationTimestamp slim.Time             `json:"creationTimestamp"`
	DeletionTimestamp slim.Time             `json:"deletionTimestamp"`
}

// EndpointStatus is what the agent reports about an endpoint.
type EndpointStatus struct {
	Identity   *EndpointIdentity  `json:"identity"` // nil until the agent has found it
	Networking EndpointNetworking `json:"networking"`
	Encryption Encryption         `json:"encryption"`
	NamedPorts NamedPorts         `json:"named-ports"`
	// ServiceAccount is that of the pod; agents up to 1.18 do not tell it.
	ServiceAccount slim.String `json:"service-account"`
}

// EndpointIdentity is the security identity of an endpoint.
type EndpointIdentity struct {
	ID int64 `json:"id"`
}

// Encryption says how traffic is encrypted: with which key, 0 for none.
type Encryption struct {
	Key int `json:"key"`
}
