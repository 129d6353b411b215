// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package nodegc

import (
	"github.com/skep-operator/skep/resources/stream/ciliumio"
)

// keep is the annotation of CiliumNodes that have no Node, and are wanted.
const keep = "cilium.io/do-not-gc"

// orphan reports whether nobody looks after a CiliumNode without a Node: one with
// owners is left to Kubernetes.
func orphan(n *ciliumio.Node) bool {
	return len(n.Owners) == 0 && n.Annotations.Get(keep) != "true"
}
