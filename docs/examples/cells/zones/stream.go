// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package zones

import (
	"github.com/skep-operator/skep/resources/stream/slim"

	v2 "github.com/skep-operator/skep/resources/api/v2"
	"github.com/skep-operator/skep/resources/stream"
)

// region stream

// ciliumNode is what this duty reads of a CiliumNode; nothing else is kept.
type ciliumNode struct {
	ciliumNodeMeta `json:"metadata"`
}

type ciliumNodeMeta struct {
	slim.Meta
	Annotations slim.Labels `json:"annotations"`
}

var ciliumNodes = stream.Custom[ciliumNode](v2.CiliumNodeResource).OfKind("CiliumNode")

// endregion
