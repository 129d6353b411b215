// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

// Package manifests has no code: here is a bare deployment of the operator, for kustomize and kubectl, and the tests that
// need nothing but libraries. Those on a real API server are in cmd/operator.
package manifests
