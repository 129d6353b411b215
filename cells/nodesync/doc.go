// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

// Package nodesync keeps the keys of nodes in etcd, which agents of this cluster and of others read: it deletes those whose
// CiliumNode and agent are gone and, for agents before 1.19, writes those that no agent holds. docs/wire/nodesync.md has the rules.
//
// plan.go and encode.go decide, controller.go watches and writes, collect.go deletes.
package nodesync
