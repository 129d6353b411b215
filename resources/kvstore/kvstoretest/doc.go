// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

// Package kvstoretest supports tests of duties that write to etcd: a real etcd with a
// client of its own, and the options of an operator that uses it; operatortest runs the
// operator. Only tests import it.
package kvstoretest
