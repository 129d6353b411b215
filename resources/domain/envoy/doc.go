// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

// Package envoy translates listeners and routes to the spec of a CiliumEnvoyConfig. It has no I/O.
//
// model.go is what is translated, whatever objects it came from; translate.go the translation, which keeps the encoded
// virtual hosts, filter chains and clusters of the last one and encodes what has changed. match.go, action.go, listener.go
// and cluster.go have the parts; service.go translates one Service with a load-balancing policy. All that is written passes
// Envoy's own validation; a route that does not is left out and reported. Equal models have equal bytes.
package envoy
