// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

// Package etcd runs real etcd clusters on loopback: one member inside this
// process, or members that are processes of their own and can be stopped,
// killed and started again.
//
// Data is not synced to disk: it survives the death of a process, not that of
// the machine.
package etcd
