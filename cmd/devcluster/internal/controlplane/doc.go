// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

// Package controlplane runs kube-apiserver and kube-controller-manager of one
// release inside this process, from the same functions that their commands
// call.
//
// Both share what Kubernetes keeps per process: feature gates, metrics and the
// log. A process can have one control plane.
package controlplane
