// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package cells

import (
	"github.com/skep-operator/skep/cells/clusterconfig"
	"github.com/skep-operator/skep/cells/crds"
	"github.com/skep-operator/skep/cells/endpointgc"
	"github.com/skep-operator/skep/cells/endpointslice"
	"github.com/skep-operator/skep/cells/health"
	"github.com/skep-operator/skep/cells/heartbeat"
	"github.com/skep-operator/skep/cells/identity"
	"github.com/skep-operator/skep/cells/identitygc"
	"github.com/skep-operator/skep/cells/ipam/clusterpool"
	"github.com/skep-operator/skep/cells/leader"
	"github.com/skep-operator/skep/cells/lockgc"
	"github.com/skep-operator/skep/cells/nodegc"
	"github.com/skep-operator/skep/cells/pending"
	"github.com/skep-operator/skep/resources/cluster"
	"github.com/skep-operator/skep/resources/explain"
	"github.com/skep-operator/skep/resources/k8s"
	"github.com/skep-operator/skep/resources/kvstore"
	"github.com/skep-operator/skep/resources/plan"
	"github.com/skep-operator/skep/resources/reconcile"
	"github.com/skep-operator/skep/resources/stream"
	"github.com/skep-operator/skep/resources/stream/ciliumio"
	"github.com/skep-operator/skep/resources/sweep"
	"github.com/skep-operator/skep/runtime/cell"
)

// Resources are what duties share.
var Resources = cell.Set(
	cluster.Cell(cluster.DefaultConfig),
	explain.Cell,
	plan.Cell,
	k8s.Cell,
	reconcile.Cell,
	sweep.Cell,
	stream.Cell,
	ciliumio.Cell,
)

// Shell is what every operator has, whatever its duties: the election, health,
// and the options of the original that nobody reads yet.
var Shell = cell.Set(
	leader.Cell,
	health.Cell,
	pending.Cell,
)

// Duties live while leading.
var Duties = cell.Set(
	kvstore.Cell,
	crds.Cell,
	clusterpool.Cell,
	endpointgc.Cell,
	nodegc.Cell,
	identity.Cell,
	identitygc.Cell,
	endpointslice.Cell,
	heartbeat.Cell,
	lockgc.Cell,
	clusterconfig.Cell,
)

// Operator is a whole operator without a cloud.
var Operator = cell.Set(Resources, Shell, cell.Term("leader", Duties))
