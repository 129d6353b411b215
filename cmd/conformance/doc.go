// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

// Package conformance runs the conformance suite of the Gateway API against the operator: `make conformance`. The control plane
// and the operator are the real ones, backends are the suite's own programs; in place of kubelets and of agents with their Envoy
// there is a stand-in, which serves the generated configurations on loopback addresses.
//
// The suite runs if SKEP_CONFORMANCE is set: to a folder of programs, operator and echo-basic.
package conformance
