// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

// Package gateway serves Gateways of GatewayClasses of io.cilium/gateway-controller, with the listeners of their ListenerSets, with
// the Envoy of agents: each has a Service, a placeholder of its backends and a CiliumEnvoyConfig. HTTPRoutes and GRPCRoutes whose parent is a Service
// configure the proxies of its clients.
//
// internal/route compiles routes into those of resources/domain/envoy; it knows the cluster by the answers that a lookup gives it (lookup.go), so
// that a route is planned again only if its object or an answer has changed. A cache of it has each route compiled once for configurations and
// statuses. internal/listener decides about listeners, and about routes at them. internal/condition is what conditions say.
//
// plan.go puts a Gateway together; status.go, listenerset.go and parents.go decide what the statuses say. tlspolicy.go decides which backends
// are spoken to with TLS, and ancestor.go where the status of a BackendTLSPolicy says so. class.go, gateway.go, listenerset.go,
// route.go, policy.go and mesh.go write. The rules are in docs/wire/gateway.md.
package gateway
