// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package envoy

import (
	"crypto/sha256"

	corev1 "k8s.io/api/core/v1"

	v2 "github.com/skep-operator/skep/resources/api/v2"
	"github.com/skep-operator/skep/resources/domain/envoy"
	"github.com/skep-operator/skep/resources/stream"
	"github.com/skep-operator/skep/resources/stream/slim"
)

// Objects is the stream of CiliumEnvoyConfigs.
var Objects = stream.Custom[Object](v2.CiliumEnvoyConfigResource).OfKind("CiliumEnvoyConfig")

// Object is what duties read of a CiliumEnvoyConfig. Of its spec a digest is kept, the ports of the nodes, and the names of secrets.
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
	Secrets   SecretNames
	isVast    bool // it has too many entries to be decoded, or more names of secrets than are kept
}

// maxEntries is how many objects a spec may have that is decoded: one is 350 bytes in memory. Those that agents accept have a third of that at most.
const maxEntries = 150_000

// UnmarshalJSON implements json.Unmarshaler.
func (s *Spec) UnmarshalJSON(text []byte) (err error) {
	s.Secrets = secretNamesIn(text)
	if s.Digest, s.isVast, err = digestOf(text); !s.isVast { // what a vast one names stays, and keeps nothing waiting
		s.HostPorts = hostPortsOf(text)
	}
	s.isVast = s.isVast || s.Secrets.IsCut()
	return err
}

// digestOf is the digest of a spec as the API server has it, in a watch or before a write. One with more than maxEntries is vast: it is not decoded, and not as
// anything that is written.
func digestOf(text []byte) (_ envoy.Digest, isVast bool, _ error) {
	if slim.Entries(text) > maxEntries {
		return sha256.Sum256(text), true, nil
	}
	digest, err := envoy.DigestOf(text)
	return digest, false, err
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
