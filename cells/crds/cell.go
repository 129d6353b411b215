// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package crds

import (
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/skep-operator/skep/resources/api"
	"github.com/skep-operator/skep/resources/k8s"
	"github.com/skep-operator/skep/resources/stream"
	"github.com/skep-operator/skep/runtime/cell"
)

// Cell registers the CRDs of cilium.io, and those of the multi-cluster services API.
var Cell = cell.Module("crds", "Registers the kinds of cilium.io, and upgrades older definitions",
	cell.Config(Config{ClusterMeshMCSAPIInstallCRDs: true}),
	cell.Module("registration", "Creates and updates definitions, before other duties start",
		cell.EnabledBy(cell.When("definitions are to be created", skipFlag, func(c Config) bool { return !c.SkipCRDCreation })),
		cell.StartFirst("duties write fields that only a current definition keeps"),
		k8s.RBAC(
			k8s.Allow("create,get,list,watch", resource),
			k8s.AllowNamed("update", resource, names(func(k api.Kind) bool { return !k.IsMulticluster() && !ofSomeReleases(k.Name) })...),
		),
		k8s.OptionalRBAC(
			k8s.AllowNamed("update", resource, names(func(k api.Kind) bool { return k.IsMulticluster() || ofSomeReleases(k.Name) })...),
		),

		cell.Metrics(newMetrics),
		stream.Provide(crdKind),
		cell.ProvidePrivate(newController),
		cell.Job("register", (*controller).run),
		cell.Job("watch", (*controller).watch),
		cell.Hook("first-pass", (*controller).firstPass, cell.StartTimeout(firstPassLimit)),
	),
	cell.Module("skipped", "Reports that the definitions are installed by another program",
		cell.EnabledBy(cell.When("definitions are there already", skipFlag, func(c Config) bool { return c.SkipCRDCreation })),
		cell.Invoke(logSkipped),
	),
)

var (
	resource = schema.GroupResource{Group: "apiextensions.k8s.io", Resource: "customresourcedefinitions"}
	skipFlag = []string{"skip-crd-creation"}
)

// firstPassLimit is the maximum time for which other modules of a term wait for CRDs.
const firstPassLimit = 10 * time.Second

// Config switches registration, and the CRDs of features of agents.
type Config struct {
	SkipCRDCreation           bool `flag:"skip-crd-creation" usage:"Do not create or update CustomResourceDefinitions; they exist already"`
	EnableEgressGateway       bool `flag:"enable-egress-gateway" usage:"Agents use CiliumEgressGatewayPolicies" hidden:"true"`
	EnableIPv4EgressGateway   bool `flag:"enable-ipv4-egress-gateway" usage:"Agents use CiliumEgressGatewayPolicies; older form of --enable-egress-gateway" hidden:"true"`
	EnableDatapathPlugins     bool `flag:"enable-datapath-plugins" usage:"Agents use CiliumDatapathPlugins" hidden:"true"`
	EnableLocalRedirectPolicy bool `flag:"enable-local-redirect-policy" usage:"Agents use CiliumLocalRedirectPolicies" hidden:"true"`

	ClusterMeshMCSAPIInstallCRDs bool `flag:"clustermesh-mcs-api-install-crds" usage:"Create and update the CustomResourceDefinitions of the multi-cluster services API, where it is enabled"`
}

// names are those of the definitions of some of the known kinds.
func names(which func(api.Kind) bool) []string {
	var names []string
	for _, k := range known() {
		if which(k) {
			names = append(names, k.CRDName())
		}
	}
	return names
}
