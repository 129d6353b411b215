// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package nodesync

import (
	"bytes"
	"encoding/json"
	"time"

	"github.com/skep-operator/skep/resources/kvstore"
)

// observedKey is the key of a node as etcd has it.
type observedKey struct {
	name     string
	entry    kvstore.Entry // without the value of one on a lease
	readable bool          // the value is that of this node in this cluster
	ours     bool          // it is what this process wrote last
	since    time.Time     // when it was first observed
}

// observe returns the state of a key, whose state before it is.
func observe(before observedKey, cluster, name string, e kvstore.Entry, now time.Time) observedKey {
	var in struct{ Name, Cluster string }
	err := json.Unmarshal(e.Value, &in)
	k := observedKey{name: name, entry: e, readable: err == nil && in.Name == name && in.Cluster == cluster, since: now}
	if before.exists() {
		k.since = before.since
	}
	if k.byAgent() {
		k.entry.Value = nil
	}
	return k
}

func (k observedKey) exists() bool { return k.entry.ModRevision != 0 }

// byAgent reports whether the key is on a lease. Operators write without one, and a put would detach it.
func (k observedKey) byAgent() bool { return k.entry.Lease != 0 }

// guard holds while the key is as it was observed.
func (k observedKey) guard(key string) kvstore.Guard {
	if !k.exists() {
		return kvstore.Absent(key)
	}
	return kvstore.Unchanged(k.entry)
}

// needsWrite decides about the key of a CiliumNode that exists.
func needsWrite(k observedKey, want []byte) bool {
	return !k.exists() || !k.byAgent() && !bytes.Equal(k.entry.Value, want)
}

// timing is when stale keys are deleted.
type timing struct {
	interval time.Duration // between sweeps
	grace    time.Duration // between two sightings
	// agentGrace is for how long the key of an agent is left alone that has neither a CiliumNode nor a pod yet.
	agentGrace time.Duration
}

// tooNew reports whether the CiliumNode of a key may still be to come.
func (k observedKey) tooNew(t timing, now time.Time) bool {
	return k.byAgent() && now.Sub(k.since) < t.agentGrace
}
