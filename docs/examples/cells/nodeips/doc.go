// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

// Package nodeips is the template of a duty that mirrors Kubernetes objects to etcd: it writes the internal
// addresses of each Node under a prefix of the cluster.
//
// plan.go decides, without a clock, network or goroutines; controller.go watches Nodes.
package nodeips
