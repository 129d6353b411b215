// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

// Package route compiles routes of all kinds into those of resources/domain/envoy, without knowing where they are attached.
//
// It is pure: what it has to know of the cluster it asks a [Lookup]. The answers that a compilation has got are recorded in [Answers], so
// that it is used again as long as the route and they are the same; a [Cache] does so for all that ask. object.go has the kinds of routes as streams have them, route.go what all
// have in common, and parent.go what they refer to as parents; http.go, grpc.go, tls.go and port.go compile each kind. The rules are in
// docs/wire/gateway.md.
package route
