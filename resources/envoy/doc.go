// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

// Package envoy is what the duties share that configure the Envoy proxies of agents: the stream of CiliumEnvoyConfigs, the
// one way to write them, and what users are to know of the objects that they come from. The translation itself is
// resources/domain/envoy.
package envoy
