// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

// Package servicesync copies global Services with their backends to etcd, for the agents of other clusters.
//
// docs/wire/servicesync.md has the rules. plan.go decides what is exported, encode.go is the value of a key, stream.go is
// what is kept of Services and EndpointSlices, and controller.go reads them. resources/mirror writes the keys.
package servicesync
