// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package kvstore

import (
	clientv3 "go.etcd.io/etcd/client/v3"
)

// Write is a change of one key, made by [Put], [PutLeased] or [Remove].
type Write struct {
	key    string
	value  []byte
	leased bool
	remove bool
}

// Put writes a key without a lease. A lease that the key had lets go of it.
func Put(key string, value []byte) Write { return Write{key: key, value: value} }

// PutLeased writes a key on a lease of this process. From then on the key is
// written again when that lease is lost, until it is removed or put otherwise.
// The value must not be changed afterwards.
func PutLeased(key string, value []byte) Write { return Write{key: key, value: value, leased: true} }

// Remove deletes a key.
func Remove(key string) Write { return Write{key: key, remove: true} }

// op is the write as etcd's client has it.
func (w Write) op(lease LeaseID) clientv3.Op {
	switch {
	case w.remove:
		return clientv3.OpDelete(w.key)
	case w.leased:
		return clientv3.OpPut(w.key, string(w.value), clientv3.WithLease(clientv3.LeaseID(lease)))
	}
	return clientv3.OpPut(w.key, string(w.value))
}

// kind is the label of metrics.
func (w Write) kind() string {
	if w.remove {
		return "delete"
	}
	return "set"
}

// Guard is a condition of [Client.WriteIf].
type Guard struct{ cmp clientv3.Cmp }

// Unchanged holds while a key is as it was read.
func Unchanged(e Entry) Guard {
	return Guard{clientv3.Compare(clientv3.ModRevision(e.Key), "=", e.ModRevision)}
}

// Held holds while a key was not deleted since it was created at the revision,
// whatever was written to it.
func Held(key string, createRevision int64) Guard {
	return Guard{clientv3.Compare(clientv3.CreateRevision(key), "=", createRevision)}
}

// Absent holds while a key does not exist.
func Absent(key string) Guard {
	return Guard{clientv3.Compare(clientv3.CreateRevision(key), "=", 0)}
}

// NoneUnder holds while no key begins with prefix.
func NoneUnder(prefix string) Guard {
	return Guard{clientv3.Compare(clientv3.CreateRevision(prefix), "=", 0).WithPrefix()}
}
