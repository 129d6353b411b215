// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

// Package nodegc deletes CiliumNodes whose Node is gone and whom Kubernetes does
// not delete by itself, so that their CIDRs are free again.
//
// docs/wire/nodes.md has the rules. When and how deletes are made is the business
// of resources/sweep; what is garbage is decided here.
package nodegc
