// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package lbipam

import (
	"time"

	"github.com/skep-operator/skep/resources/k8s"
	"github.com/skep-operator/skep/resources/stream"
	"github.com/skep-operator/skep/runtime/cell"
)

// Cell allocates addresses to LoadBalancer Services.
var Cell = cell.Module("lbipam", "Allocates addresses of CiliumLoadBalancerIPPools to LoadBalancer Services",
	cell.Config(Config{EnableLBIPAM: true, LBIPAMMaxRequested: 4}),
	cell.EnabledBy(cell.When("pools of LoadBalancer addresses are used", []string{"enable-lb-ipam"}, func(c Config) bool { return c.EnableLBIPAM })),
	k8s.RBAC(
		k8s.Allow("list,watch", poolKind.Resource().GroupResource()),
		k8s.Allow("patch", poolStatusResource),
		k8s.Allow("get,list,watch", serviceKind.Resource().GroupResource()),
		k8s.Allow("patch", serviceStatusResource),
	),
	k8s.OptionalRBAC(
		k8s.Allow("get", poolKind.Resource().GroupResource()),
		k8s.Allow("update", serviceStatusResource), // where another writer undoes a change
	),
	k8s.EventRBAC(),

	stream.Provide(poolKind),
	stream.ProvideSelected(serviceKind, selectServices, stream.OnDemand()),
	cell.Metrics(newMetrics),
	cell.ProvidePrivate(newController),
	cell.Job("write-services", (*controller).writeServices),
	cell.Job("write-pools", (*controller).writePools),
	cell.Job("watch-pools", (*controller).watchPools, cell.Retry(time.Second, time.Minute)),
	cell.Job("watch-services", (*controller).watchServices, cell.Retry(time.Second, time.Minute)),
	cell.Job("recheck", (*controller).recheckUnknown),
)
