// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package servicel7

import (
	"github.com/skep-operator/skep/resources/agents"
	v2 "github.com/skep-operator/skep/resources/api/v2"
	envoyres "github.com/skep-operator/skep/resources/envoy"
	"github.com/skep-operator/skep/resources/k8s"
	"github.com/skep-operator/skep/resources/reconcile"
	"github.com/skep-operator/skep/resources/stream"
	"github.com/skep-operator/skep/runtime/cell"
)

// Cell has Envoy balance the requests of Services.
var Cell = cell.Module("servicel7", "Configures Envoy to balance the requests of annotated Services",
	cell.Config(Config{LoadbalancerL7Algorithm: "round_robin"}),
	cell.EnabledBy(cell.When("Envoy balances requests of Services", []string{"loadbalancer-l7"}, Config.enabled)),
	k8s.RBAC(k8s.Allow("create,delete", v2.CiliumEnvoyConfigResource.GroupResource())),
	k8s.EventRBAC(),

	cell.Metrics(newMetrics),
	stream.Provide(services),
	stream.ProvideSelected(agentPods, agents.Selected[envoyres.Agent[duty]], stream.OnDemand()),
	reconcile.Controller(newController,
		reconcile.Watches(services, (*controller).serviceChanged),
		reconcile.Watches(envoyres.Objects, (*controller).configChanged),
		reconcile.WatchesOnDemand(agentPods, (*controller).agentsOnDemand, (*controller).agentChanged),
		reconcile.Writes[*controller](v2.CiliumEnvoyConfigResource),
	),
)
