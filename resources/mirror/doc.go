// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

// Package mirror is the mechanism by which duties copy objects of Kubernetes to etcd: changes of streams set the desired
// values of keys, and a [kvstore.SyncStore] brings etcd to them.
//
// The mechanism declares watches and permissions, sets the cause of every write, and decides when the initial state is
// complete. What a key holds is decided by the duty, without I/O.
package mirror
