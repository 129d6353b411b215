// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package ciliumio

import (
	v2 "github.com/skep-operator/skep/resources/api/v2"
	"github.com/skep-operator/skep/resources/stream"
	"github.com/skep-operator/skep/resources/stream/slim"
)

// Identities is the stream of CiliumIdentities.
var Identities = stream.Custom[Identity](v2.CiliumIdentityResource).OfKind("CiliumIdentity")

// Identity is what duties read of a CiliumIdentity. Its name is its number.
type Identity struct {
	IdentityMeta   `json:"metadata"`
	slim.Undecoded `json:"-"`
	SecurityLabels slim.Labels `json:"security-labels"`
}

// IdentityMeta is the metadata of a CiliumIdentity.
type IdentityMeta struct {
	slim.Meta
	Labels            slim.Labels                         `json:"labels"`
	Annotations       slim.Subset[slim.CiliumAnnotations] `json:"annotations"`
	CreationTimestamp slim.Time                           `json:"creationTimestamp"`
	DeletionTimestamp slim.Time                           `json:"deletionTimestamp"`
}
