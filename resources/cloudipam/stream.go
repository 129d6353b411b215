// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package cloudipam

import (
	"cmp"

	"k8s.io/apimachinery/pkg/runtime/schema"

	v2 "github.com/skep-operator/skep/resources/api/v2"
	"github.com/skep-operator/skep/resources/stream"
	"github.com/skep-operator/skep/resources/stream/ciliumio"
	"github.com/skep-operator/skep/resources/stream/slim"
)

var statusResource = schema.GroupResource{Group: v2.CiliumNodeResource.Group, Resource: v2.CiliumNodeResource.Resource + "/status"}

// ciliumNode is what this mechanism reads of a CiliumNode, and what providers read of it.
type ciliumNode struct {
	ciliumNodeMeta `json:"metadata"`
	slim.Undecoded `json:"-"`
	Spec           v2.CiliumNodeSpec   `json:"spec"`
	Status         v2.CiliumNodeStatus `json:"status"`
}

type ciliumNodeMeta struct {
	slim.Meta
	Annotations       slim.Subset[slim.CiliumAnnotations] `json:"annotations"`
	CreationTimestamp slim.Time                           `json:"creationTimestamp"`
	DeletionTimestamp slim.Time                           `json:"deletionTimestamp"`
}

// instanceID is the instance of a node. Old agents have it among the fields for AWS.
func (n *ciliumNode) instanceID() string { return cmp.Or(n.Spec.InstanceID, n.Spec.ENI.InstanceID) }

// isIgnored reports whether the addresses of the node are to be left alone.
func (n *ciliumNode) isIgnored() bool { return ciliumio.IgnoresIPAM(n.Annotations.Map()) }

// isOlderThan reports which of two CiliumNodes was there first.
func (n *ciliumNode) isOlderThan(other *ciliumNode) bool {
	return cmp.Or(n.CreationTimestamp.Time().Compare(other.CreationTimestamp.Time()), cmp.Compare(n.Name, other.Name)) < 0
}

var byInstance = stream.NewIndex("instance", func(n *ciliumNode, add func(string)) { add(n.instanceID()) })

// pendingPod is a pod that is bound to a node and has no containers yet.
type pendingPod struct {
	slim.Meta `json:"metadata"`
	Spec      struct {
		NodeName    slim.String `json:"nodeName"`
		HostNetwork bool        `json:"hostNetwork"`
	} `json:"spec"`
}

var pendingByNode = stream.NewIndex("node", func(p *pendingPod, add func(slim.String)) {
	if !p.Spec.HostNetwork {
		add(p.Spec.NodeName)
	}
})
