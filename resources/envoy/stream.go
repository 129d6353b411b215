// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package envoy

import (
	corev1 "k8s.io/api/core/v1"

	v2 "github.com/skep-operator/skep/resources/api/v2"
	"github.com/skep-operator/skep/resources/domain/envoy"
	"github.com/skep-operator/skep/resources/stream"
	"github.com/skep-operator/skep/resources/stream/slim"
)

// Objects is the stream of CiliumEnvoyConfigs.
var Objects = stream.Custom[Object](v2.CiliumEnvoyConfigResource).OfKind("CiliumEnvoyConfig")

// Object is what duties read of a CiliumEnvoyConfig. Of its spec a digest is kept, and the ports of the nodes.
type Object struct {
	ObjectMeta     `json:"metadata"`
	slim.Undecoded `json:"-"`
	Spec           Spec `json:"spec"`
}

// ObjectMeta is the metadata of a CiliumEnvoyConfig.
type ObjectMeta struct {
	slim.Meta
	Labels      slim.Labels              `json:"labels"`
	Annotations slim.Subset[annotations] `json:"annotations"`
	Controller  slim.Owner               `json:"ownerReferences"`

	CreationTimestamp slim.Time `json:"creationTimestamp"`
	DeletionTimestamp slim.Time `json:"deletionTimestamp"`
}

// Spec is what is kept of a spec.
type Spec struct {
	Digest    envoy.Digest
	HostPorts HostPorts
}

// UnmarshalJSON implements json.Unmarshaler.
func (s *Spec) UnmarshalJSON(text []byte) (err error) {
	s.HostPorts = hostPortsOf(text)
	s.Digest, err = envoy.DigestOf(text)
	return err
}

// The label, of agents up to 1.18, and the annotation, of later ones, with which the source address of connections to
// backends is that of the node, not of the client.
const (
	sourceAddressLabel      = "cilium.io/use-original-source-address"
	sourceAddressAnnotation = "cec.cilium.io/use-original-source-address"
)

// annotations are all but the one with a copy of the object.
type annotations struct{}

// Keep implements slim.KeyFilter.
func (annotations) Keep(key string) bool { return key != corev1.LastAppliedConfigAnnotation }
