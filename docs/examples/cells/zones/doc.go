// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

// Package zones is the duty that docs/writing-a-cell.md shows, and the template of a reconciler: it writes
// the zone of each Node to its CiliumNode.
//
// plan.go decides, without a clock, network or goroutines; controller.go watches and writes.
package zones
