// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

// Package agent does what an agent does with CiliumEnvoyConfigs: the addresses of LoadBalancer Services are served by a proxy as
// the configuration says, which is told endpoints and certificates. All of it is on loopback addresses of this host.
package agent
