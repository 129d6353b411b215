// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

// Package clusterconfig publishes the number and the capabilities of this cluster to the other clusters of the mesh.
//
// docs/wire/clusterconfig.md has the rules. The package does not read the configuration of other clusters.
package clusterconfig
