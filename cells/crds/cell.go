// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package crds

import (
	"time"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/skep-operator/skep/resources/api"
	"github.com/skep-operator/skep/resources/k8s"
	"github.com/skep-operator/skep/runtime/cell"
)

// Cell registers the kinds of cilium.io.
var Cell = cell.Module("crds", "Registers the kinds of cilium.io, and upgrades older definitions",
	cell.Config(Config{}),
	cell.Module("registration", "Creates and updates definitions, before other duties start",
		cell.EnabledBy(cell.When("definitions are to be created", skipFlag, func(c Config) bool { return !c.SkipCRDCreation })),
		cell.First("duties write fields that only a current definition keeps"),
		k8s.RBAC(
			k8s.Allow("create,get,list,watch", resource),
			k8s.AllowNamed("update", resource, names()...),
		),

		cell.Metrics(newMetrics),
		cell.ProvidePrivate(newRegistrar),
		cell.Job("register", (*registrar).job),
		cell.Hook("first-pass", (*registrar).firstPass, cell.StartTimeout(firstPassLimit)),
	),
	cell.Module("skipped", "Says that definitions are left to somebody else",
		cell.EnabledBy(cell.When("definitions are there already", skipFlag, func(c Config) bool { return c.SkipCRDCreation })),
		cell.Invoke(tellSkipped),
	),
)

var (
	resource = schema.GroupResource{Group: "apiextensions.k8s.io", Resource: "customresourcedefinitions"}
	skipFlag = []string{"skip-crd-creation"}
)

// firstPassLimit is how long the other cells of a term wait for definitions.
const firstPassLimit = 10 * time.Second

// Config switches registration, and the kinds of features that only agents
// have.
type Config struct {
	SkipCRDCreation           bool `flag:"skip-crd-creation"`
	EnableIPv4EgressGateway   bool `flag:"enable-ipv4-egress-gateway"`
	EnableLocalRedirectPolicy bool
}

// Flags implements cell.Flagger.
func (c Config) Flags(fs *pflag.FlagSet) {
	fs.Bool("skip-crd-creation", c.SkipCRDCreation, "Register no kinds; they are there already")
	fs.Bool("enable-ipv4-egress-gateway", c.EnableIPv4EgressGateway, "Agents take CiliumEgressGatewayPolicies")
	fs.Bool("enable-local-redirect-policy", c.EnableLocalRedirectPolicy, "Agents take CiliumLocalRedirectPolicies")
	for _, agents := range []string{"enable-ipv4-egress-gateway", "enable-local-redirect-policy"} {
		_ = fs.MarkHidden(agents)
	}
}

func names() []string {
	var names []string
	for _, k := range api.Kinds() {
		names = append(names, k.CRDName())
	}
	return names
}
