// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package kvstore

import (
	"github.com/skep-operator/skep/resources/cluster"
	"github.com/skep-operator/skep/resources/identitygc"
	"github.com/skep-operator/skep/runtime/cell"
)

// Cell deletes unused identities in the kvstore.
var Cell = cell.Module("identitygc.kvstore", "Deletes identities in etcd that no node uses any more",
	cell.EnabledBy(identitygc.Enabled),
	cell.EnabledBy(cell.When("identities are kept in etcd", []string{"identity-allocation-mode", "kvstore"}, cluster.Config.IdentitiesInKVStore)),

	cell.Metrics(newMetrics),
	cell.ProvidePrivate(newController),
	cell.Job("sweep", (*controller).run),
)
