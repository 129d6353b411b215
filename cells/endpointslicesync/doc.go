// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

// Package endpointslicesync writes EndpointSlices for the endpoints that global services have in other clusters.
//
// docs/wire/endpointslicesync.md has the rules. plan.go decides the slices of a Service in one remote cluster, stream.go is
// what is kept of Services and EndpointSlices, controller.go reads them and what resources/clustermesh knows, and write.go
// writes the slices.
package endpointslicesync
