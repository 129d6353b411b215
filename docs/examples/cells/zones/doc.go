// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

// Package zones is the duty that docs/writing-a-cell.md builds: it tells every
// CiliumNode which zone its node is in.
//
// plan.go decides and knows no clock, no network and no goroutines; loop.go
// watches and writes.
package zones
