// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

// Package nodeipam writes addresses of nodes to LoadBalancer Services of the class io.cilium/node.
//
// docs/wire/nodeipam.md has the rules. plan.go decides, without I/O; controller.go watches and writes; states.go is what
// is reported of Services without addresses. EndpointSlices are watched only while a Service with the external traffic
// policy Local needs them.
package nodeipam
