// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

// Package cluster puts a devcluster together in one directory: etcd, the
// control plane, fault proxies in front of both, and the control API that drives
// them.
package cluster
