// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package zones

import (
	v2 "github.com/skep-operator/skep/resources/api/v2"
	"github.com/skep-operator/skep/resources/stream/slim"
)

// region plan

// annotation is the zone of a CiliumNode.
const annotation = "zones.example.com/zone"

// desired is the zone of a CiliumNode, and whether it has another one.
func desired(label string, node *slim.Node, n *ciliumNode) (zone string, differs bool) {
	zone = node.Labels.Get(label)
	return zone, zone != n.Annotations.Get(annotation)
}

// endregion

func setZone(n *v2.CiliumNode, zone string) {
	if zone == "" {
		delete(n.Annotations, annotation)
		return
	}
	if n.Annotations == nil {
		n.Annotations = map[string]string{}
	}
	n.Annotations[annotation] = zone
}
