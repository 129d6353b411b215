// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

// Package cluster owns the options that many duties share: who the cluster is,
// which address families it has, where its own objects live, who gives out
// identities and addresses. Each flag has one owner; duties ask for the struct.
//
// What only one duty reads belongs to that duty.
package cluster
