// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package leader

import (
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/skep-operator/skep/resources/k8s"
	"github.com/skep-operator/skep/runtime/cell"
)

// Cell elects one of several replicas, which then runs the term "leader".
var Cell = cell.Module("leader", "Elects the replica that acts, and hands over to another without a gap",
	cell.Config(Config{
		LeaderElectionLeaseDuration: 15 * time.Second,
		LeaderElectionRenewDeadline: 10 * time.Second,
		LeaderElectionRetryPeriod:   2 * time.Second,
	}),
	cell.EnabledBy(k8s.InUse),
	k8s.RBAC(k8s.Allow("create,get,update", schema.GroupResource{Group: "coordination.k8s.io", Resource: "leases"})),

	cell.Metrics(newMetrics),
	cell.ProvidePrivate(newElector),
	cell.Provide((*elector).election),
	cell.Job("elect", (*elector).run, cell.Retry(time.Second, time.Minute)),
)
