// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package kvstore

import (
	"path"
	"strings"
)

// Keys and prefixes of the cluster's data. Prefixes have no slash at their end;
// [Key] joins.
const (
	HeartbeatKey = "cilium/.heartbeat"

	ClusterConfigPrefix = "cilium/cluster-config"
	SyncedPrefix        = "cilium/synced"

	ServicesPrefix       = "cilium/state/services/v1"
	ServiceExportsPrefix = "cilium/state/serviceexports/v1"
	NodesPrefix          = "cilium/state/nodes/v1"

	IdentitiesPrefix     = "cilium/state/identities/v1/id"
	IdentityValuesPrefix = "cilium/state/identities/v1/value"
	IdentityLocksPrefix  = "cilium/state/identities/v1/locks"

	initLockPrefix = "cilium/.initlock"
)

// Key joins a prefix and segments with slashes, as they are: nothing is cleaned
// or escaped.
func Key(prefix string, segments ...string) string {
	return strings.Join(append([]string{prefix}, segments...), "/")
}

// Folder is what all keys below a path begin with.
func Folder(prefix string, segments ...string) string { return Key(prefix, segments...) + "/" }

// scope is the label under which a key is counted.
func scope(key string) string {
	if parts := strings.SplitN(path.Clean(key), "/", 5); len(parts) >= 4 {
		return parts[2] + "/" + parts[3]
	}
	return key[:min(12, len(key))]
}

// isMark reports whether a key says that others are complete.
func isMark(key string) bool { return strings.HasPrefix(key, SyncedPrefix+"/") }
