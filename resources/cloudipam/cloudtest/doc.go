// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

// Package cloudtest checks providers of cloudipam, and has for tests the CiliumNodes of an API server as agents write them, and
// a cloud in memory: with quotas, with faults, and with the habit of giving the address again that was released last.
//
// Check is the conformance suite. Every provider runs it from a test of its own:
//
//	func TestProvider(t *testing.T) {
//		cloudtest.Check(t, func(t *testing.T) cloudtest.Subject { … })
//	}
package cloudtest
