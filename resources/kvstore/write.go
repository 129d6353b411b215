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

// Put writes a key without a lease and detaches it from a lease that it had.
func Put(key string, value []byte) Write { return Write{key: key, value: value} }

// PutLeased writes a key on a lease of this process. The key is written again when
// its lease is lost, until it is removed or put without a lease. The value must not
// be changed afterwards.
func PutLeased(key string, value []byte) Write { return Write{key: key, value: value, leased: true} }

// Remove deletes a key.
func Remove(key string) Write { return Write{key: key, remove: true} }

// op returns the write as an operation of etcd's client.
func (w Write) op(lease LeaseID) clientv3.Op {
	switch {
	case w.remove:
		return clientv3.OpDelete(w.key)
	case w.leased:
		return clientv3.OpPut(w.key, string(w.value), clientv3.WithLease(clientv3.LeaseID(lease)))
	}
	return clientv3.OpPut(w.key, string(w.value))
}

// kind returns the metric label.
func (w Write) kind() string {
	if w.remove {
		return "delete"
	}
	return "set"
}

// Guard is a condition of [Client.WriteIf] and of a [Removal].
type Guard struct{ cmp clientv3.Cmp }

// Unchanged holds while a key has the mod revision of an entry.
func Unchanged(e Entry) Guard {
	return Guard{clientv3.Compare(clientv3.ModRevision(e.Key), "=", e.ModRevision)}
}

// Held holds while a key has the create revision: it was not deleted since, but may
// have been changed.
func Held(key string, createRevision int64) Guard {
	return Guard{clientv3.Compare(clientv3.CreateRevision(key), "=", createRevision)}
}

// Absent holds while a key does not exist.
func Absent(key string) Guard {
	return Guard{clientv3.Compare(clientv3.CreateRevision(key), "=", 0)}
}

// NoneUnder holds while no key has the prefix.
func NoneUnder(prefix string) Guard {
	return Guard{clientv3.Compare(clientv3.CreateRevision(prefix), "=", 0).WithPrefix()}
}

// NoneSince holds while no key with the prefix was written after a revision.
func NoneSince(prefix string, revision int64) Guard {
	return Guard{clientv3.Compare(clientv3.ModRevision(prefix), "<", revision+1).WithPrefix()}
}
