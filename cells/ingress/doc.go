// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

// Package ingress serves Ingresses of the class cilium with the Envoy of agents, each with a load balancer of its own or all
// with a shared one.
//
// docs/wire/ingress.md has the rules. annotation.go reads the annotations of an Ingress, ingest.go turns it into listeners and
// routes, objects.go is the Service and the Endpoints of a load balancer; resources/domain/envoy translates. controller.go
// decides what an Ingress needs, dedicated.go and shared.go write it, status.go copies addresses.
package ingress
