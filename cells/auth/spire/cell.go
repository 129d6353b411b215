// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package spire

import (
	"time"

	corev1 "k8s.io/api/core/v1"

	v2 "github.com/skep-operator/skep/resources/api/v2"
	"github.com/skep-operator/skep/resources/cluster"
	"github.com/skep-operator/skep/resources/domain/identity"
	"github.com/skep-operator/skep/resources/k8s"
	"github.com/skep-operator/skep/resources/outside"
	"github.com/skep-operator/skep/runtime/cell"
)

// Cell registers identities with SPIRE.
var Cell = cell.Module("auth.spire", "Registers identities with SPIRE, so that agents authenticate their peers",
	cell.Config(defaults),
	cell.EnabledBy(cell.When("agents authenticate peers by SPIRE", []string{"mesh-auth-enabled", "mesh-auth-mutual-enabled"}, Config.enabled)),
	cell.Validate(validateMode),
	k8s.RBAC(k8s.Allow("get", services.GroupResource())),
	cell.Module("identities", "Watches the CiliumIdentities that are registered with SPIRE",
		cell.EnabledBy(cell.When("identities are kept as objects", modeFlags, cluster.Config.IdentitiesInCRD)),
		k8s.RBAC(k8s.Allow("list,watch", v2.CiliumIdentityResource.GroupResource())),
		cell.Provide(newIdentities),
	),

	cell.Metrics(newMetrics),
	cell.Metrics(outside.NewAPIMetrics("spire")),
	cell.ProvidePrivate(newWorkload, newConnection, newServer, newController),
	cell.Provide(func(c *controller) identity.Deletions { return c }),
	cell.Job("workload", (*workload).run, cell.Retry(firstPause, longestPause)),
	cell.Job("register", (*controller).run, cell.Retry(time.Second, time.Minute)),
	cell.Job("watch", (*controller).watch),
)

var services = corev1.SchemeGroupVersion.WithResource("services")

var modeFlags = []string{"identity-allocation-mode", "kvstore"}

// The pauses between attempts to connect.
const (
	firstPause   = 100 * time.Millisecond
	longestPause = 10 * time.Second
)
