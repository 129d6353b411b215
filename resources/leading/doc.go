// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

// Package leading is what leadership means for those who write: the fence that ends
// the right to write, and the record of what was written, for the next leader.
//
//   - A [Fence] is a deadline on two clocks. Clients of Kubernetes, of etcd and of other
//     stores check it before each write, and close their connections with it.
//   - A [Session] is how the cell that holds the lease opens and ends a term.
//   - A [Tracker] records how far writes went. It is handed over with the lease, and a
//     [Handover] gives it to the modules of the next term.
//
// The lease itself is held by cells/leader, and writes are sent by resources/k8s.
package leading
