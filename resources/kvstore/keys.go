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
	EndpointSlicesPrefix = "cilium/state/endpointslices/v1"
	ServiceExportsPrefix = "cilium/state/serviceexports/v1"
	NodesPrefix          = "cilium/state/nodes/v1"

	IdentitiesPrefix     = "cilium/state/identities/v1/id"
	IdentityValuesPrefix = "cilium/state/identities/v1/value"
	IdentityLocksPrefix  = "cilium/state/identities/v1/locks"

	initLockPrefix = "cilium/.initlock"
)

// What the configuration of a cluster says of the keys that have the backends of its services, in the field endpointSlicesExportMode; without
// it they are those of services (CC-7, MESH-20).
const (
	ServicesAndSlices = "services-and-endpointslices"
	SlicesAlone       = "endpointslices-only"
)

// Key joins a prefix and segments with slashes, as they are: nothing is cleaned
// or escaped.
func Key(prefix string, segments ...string) string {
	return strings.Join(append([]string{prefix}, segments...), "/")
}

// Folder returns the prefix of all keys below a path: the path and a slash.
func Folder(prefix string, segments ...string) string { return Key(prefix, segments...) + "/" }

// keyClass returns the metric label of a key.
func keyClass(key string) string {
	if parts := strings.SplitN(path.Clean(key), "/", 5); len(parts) >= 4 {
		return parts[2] + "/" + parts[3]
	}
	return key[:min(12, len(key))]
}

// isSyncedMarker reports whether a key marks a prefix as synced.
func isSyncedMarker(key string) bool { return strings.HasPrefix(key, SyncedPrefix+"/") }
