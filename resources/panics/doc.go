// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

// Package panics keeps a panic to the object whose handling panicked: it waits with a back-off of its own, is named, and the
// others go on. The mechanisms for duties (reconcile, sweep, mirror) handle each object by a [Rule].
//
// Where state that objects share was being changed, which a duty says with [Sharing], that state cannot be trusted any more: the
// module is rebuilt, and finds in the [Memory] which object has to wait.
package panics
