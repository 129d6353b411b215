// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package identity

import "k8s.io/apimachinery/pkg/types"

// Assignments tell which pod bears which identity, where the operator decides
// about that. They are offered by the duty that makes identities, for the term,
// and are safe for concurrent use.
type Assignments interface {
	// Of returns the number that the pod's labels have, and whether the object of
	// that number is known to exist. It stays the same as long as that object and
	// those labels do, also where another object has the same labels.
	Of(pod types.NamespacedName) (Number, bool)

	// Bearers returns how many pods have labels with this number.
	Bearers(n Number) int

	// Observe has see called with each pod for which Of has changed its answer,
	// until cancel returns. Calls come one at a time, in no order, and may repeat;
	// see must not block, and may call Of.
	Observe(see func(pod types.NamespacedName)) (cancel func())

	// Complete is closed once all pods that were there at the start of the term
	// have been looked at. Before that, that a number has no bearers says nothing.
	Complete() <-chan struct{}
}
