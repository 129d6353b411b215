// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

// Package pods runs the Deployments of the conformance suite on this host: a devcluster has no controllers of workloads, no
// scheduler and no kubelet. A pod of the suite's echo server is a process of it, on ports of its own, and its log is what the
// API server gets from a kubelet. Other pods are ready, and nothing runs.
package pods
