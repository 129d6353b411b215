// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

// Package kvstoretest is for tests of duties that write to etcd: a real etcd that
// is read and written past what is under test, and duties in a term that is
// entered and left, with real connections, leases and fences. Only tests import
// it.
package kvstoretest
