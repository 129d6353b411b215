// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

// Package admission is an admission webhook server that rejects, delays and rewrites what
// it is asked about, and its registration with an API server.
//
// The shapes are those of resources/clustertest/control. Nothing here may import
// k8s.io/kubernetes: the package's tests stay cheap.
package admission
