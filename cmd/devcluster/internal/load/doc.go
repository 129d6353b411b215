// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

// Package load fills a devcluster with nodes, workloads, pods and what agents
// write about them. What there is, is planned from a size and a seed and depends
// on nothing else; it is written through the API server or, byte for byte as the
// API server would store it, straight into etcd.
package load
