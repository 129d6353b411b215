// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package nodeips

import (
	"github.com/skep-operator/skep/resources/kvstore"
	"github.com/skep-operator/skep/resources/mirror"
	"github.com/skep-operator/skep/resources/stream"
	"github.com/skep-operator/skep/runtime/cell"
)

// region declaration

// Cell mirrors the internal addresses of Nodes to etcd.
var Cell = cell.Module("nodeips", "Mirrors the internal addresses of Nodes to etcd",
	cell.EnabledBy(kvstore.InUse),
	mirror.Controller(prefix, newController, mirror.For[*controller](stream.Nodes)),
)

// prefix is the prefix of the keys; the cluster's name and the Node's follow.
const prefix = "cilium/state/nodeips/v1"

// endregion
