// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

// Package bgp writes the CiliumBGPNodeConfig of each node that a CiliumBGPClusterConfig selects.
//
// docs/wire/bgp.md has the rules. plan.go decides what becomes of the CiliumBGPNodeConfig of a node, routerid.go allocates
// router IDs, and conditions.go says what is wrong with a CiliumBGPClusterConfig: pure, no I/O. controller.go watches, write.go
// writes CiliumBGPNodeConfigs, status.go writes conditions, and stream.go has what is kept of the objects.
package bgp
