// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package identity

import (
	"iter"

	"k8s.io/apimachinery/pkg/types"
)

// Assignments maps pods to identities where the operator manages identities. It is
// provided for the term by the duty that creates CiliumIdentities, and is safe for
// concurrent use.
type Assignments interface {
	// ForPod returns the number of the pod's labels and whether the CiliumIdentity of
	// that number exists. It does not change while that object and those labels
	// exist, even if another object has the same labels.
	ForPod(pod types.NamespacedName) (Number, bool)

	// All yields the numbers of all labels that the pod's agent may look for: those of
	// ForPod, and others while agents of several releases run.
	All(pod types.NamespacedName) iter.Seq[Number]

	// Wanted reports whether the agent of any pod may look for this identity.
	Wanted(n Number) bool

	// Observe calls see for each pod whose answer of ForPod has changed, until cancel
	// returns. Calls are serial, in no order, and may repeat; see must not block
	// and may call ForPod.
	Observe(see func(pod types.NamespacedName)) (cancel func())

	// Complete returns a channel that is closed once all pods that existed at the
	// start of the term are assigned. Before that, no pods with a number means
	// nothing.
	Complete() <-chan struct{}

	// Whole returns an error while there are pods, or objects on which their
	// identities depend, that cannot be decoded: such a pod may have any identity.
	Whole() error
}
