// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package ciliumio

import (
	"github.com/skep-operator/skep/resources/api/v2alpha1"
	"github.com/skep-operator/skep/resources/stream"
	"github.com/skep-operator/skep/resources/stream/slim"
)

// EndpointSlices is the stream of CiliumEndpointSlices.
var EndpointSlices = stream.Custom[EndpointSlice](v2alpha1.CiliumEndpointSliceResource)

// EndpointSlice is what duties read of a CiliumEndpointSlice.
type EndpointSlice struct {
	EndpointSliceMeta `json:"metadata"`
	// Of is the namespace of the endpoints; the slice itself has none.
	Of        slim.String     `json:"namespace"`
	Endpoints []SliceEndpoint `json:"endpoints"`
}

// EndpointSliceMeta is the metadata of a CiliumEndpointSlice.
type EndpointSliceMeta struct {
	slim.Meta
	CreationTimestamp slim.Time `json:"creationTimestamp"`
}

// SliceEndpoint is an endpoint as a slice has it.
type SliceEndpoint struct {
	Name       string              `json:"name"`
	IdentityID int64               `json:"id"`
	Networking *EndpointNetworking `json:"networking"`
	Encryption Encryption          `json:"encryption"`
	NamedPorts []NamedPort         `json:"named-ports"`
}
