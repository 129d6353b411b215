// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package cells

import (
	"github.com/skep-operator/skep/cells/agentoptions"
	authspire "github.com/skep-operator/skep/cells/auth/spire"
	"github.com/skep-operator/skep/cells/auth/ztunnel"
	"github.com/skep-operator/skep/cells/bgp"
	"github.com/skep-operator/skep/cells/clusterconfig"
	"github.com/skep-operator/skep/cells/crds"
	"github.com/skep-operator/skep/cells/doublewrite"
	"github.com/skep-operator/skep/cells/endpointgc"
	"github.com/skep-operator/skep/cells/endpointslice"
	"github.com/skep-operator/skep/cells/endpointslicesync"
	"github.com/skep-operator/skep/cells/features"
	"github.com/skep-operator/skep/cells/gateway"
	"github.com/skep-operator/skep/cells/health"
	"github.com/skep-operator/skep/cells/heartbeat"
	"github.com/skep-operator/skep/cells/identity"
	identitycrd "github.com/skep-operator/skep/cells/identitygc/crd"
	identitykvstore "github.com/skep-operator/skep/cells/identitygc/kvstore"
	"github.com/skep-operator/skep/cells/ingress"
	"github.com/skep-operator/skep/cells/ipam/clusterpool"
	"github.com/skep-operator/skep/cells/ipam/multipool"
	"github.com/skep-operator/skep/cells/lbipam"
	"github.com/skep-operator/skep/cells/leader"
	"github.com/skep-operator/skep/cells/lockgc"
	"github.com/skep-operator/skep/cells/mcsapi"
	"github.com/skep-operator/skep/cells/nodegc"
	"github.com/skep-operator/skep/cells/nodeipam"
	"github.com/skep-operator/skep/cells/nodes/taints"
	"github.com/skep-operator/skep/cells/nodes/unmanaged"
	"github.com/skep-operator/skep/cells/nodesync"
	"github.com/skep-operator/skep/cells/pending"
	"github.com/skep-operator/skep/cells/policy/derivative"
	"github.com/skep-operator/skep/cells/policy/validation"
	"github.com/skep-operator/skep/cells/secretsync"
	"github.com/skep-operator/skep/cells/servicel7"
	"github.com/skep-operator/skep/cells/servicesync"
	"github.com/skep-operator/skep/resources/agents"
	"github.com/skep-operator/skep/resources/cluster"
	"github.com/skep-operator/skep/resources/cluster/release"
	"github.com/skep-operator/skep/resources/clustermesh"
	"github.com/skep-operator/skep/resources/dryrun"
	"github.com/skep-operator/skep/resources/envoy"
	"github.com/skep-operator/skep/resources/explain"
	"github.com/skep-operator/skep/resources/globalnamespace"
	"github.com/skep-operator/skep/resources/identitygc"
	"github.com/skep-operator/skep/resources/k8s"
	"github.com/skep-operator/skep/resources/kvstore"
	"github.com/skep-operator/skep/resources/networkpolicy"
	"github.com/skep-operator/skep/resources/outside"
	"github.com/skep-operator/skep/resources/reconcile"
	"github.com/skep-operator/skep/resources/secretref"
	"github.com/skep-operator/skep/resources/spire"
	"github.com/skep-operator/skep/resources/stream"
	"github.com/skep-operator/skep/resources/stream/ciliumio"
	"github.com/skep-operator/skep/resources/sweep"
	"github.com/skep-operator/skep/runtime/cell"
)

// Resources are what duties share.
var Resources = cell.Set(
	cluster.Cell(cluster.DefaultConfig),
	release.Cell,
	explain.Cell,
	dryrun.Cell,
	k8s.Cell,
	outside.Cell,
	reconcile.Cell,
	sweep.Cell,
	stream.Cell,
	ciliumio.Cell,
	agents.Cell,
	networkpolicy.Cell,
	envoy.Cell,
	secretref.Cell,
)

// Shell is what every operator has, whatever its duties: the election, health,
// and the options of the original that no duty reads.
var Shell = cell.Set(
	leader.Cell,
	health.Cell,
	features.Cell,
	agentoptions.Cell,
	pending.Cell,
)

// Duties live while leading.
var Duties = cell.Set(
	agents.Releases,
	kvstore.Cell,
	crds.Cell,
	clusterpool.Cell,
	nodeipam.Cell,
	multipool.Cell,
	endpointgc.Cell,
	nodegc.Cell,
	taints.Cell,
	unmanaged.Cell,
	identity.Cell,
	identitygc.Cell,
	identitycrd.Cell,
	identitykvstore.Cell,
	doublewrite.Cell,
	spire.Cell,
	authspire.Cell,
	ztunnel.Cell,
	endpointslice.Cell,
	lbipam.Cell,
	bgp.Cell,
	heartbeat.Cell,
	lockgc.Cell,
	clusterconfig.Cell,
	clustermesh.Cell,
	endpointslicesync.Cell,
	globalnamespace.Cell,
	servicesync.Cell,
	mcsapi.Cell,
	servicel7.Cell,
	ingress.Cell,
	secretsync.Cell,
	gateway.Cell,
	nodesync.Cell,
	validation.Cell,
	derivative.Cell,
)

// Operator is a whole operator without a cloud.
var Operator = cell.Set(Resources, Shell, cell.Term("leader", Duties))
