// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package spire

import (
	"time"

	v2 "github.com/skep-operator/skep/resources/api/v2"
	"github.com/skep-operator/skep/resources/cluster"
	"github.com/skep-operator/skep/resources/domain/identity"
	"github.com/skep-operator/skep/resources/k8s"
	"github.com/skep-operator/skep/resources/spire"
	"github.com/skep-operator/skep/runtime/cell"
)

// Cell registers identities with SPIRE.
var Cell = cell.Module("auth.spire", "Registers identities with SPIRE, so that agents authenticate their peers",
	cell.EnabledBy(spire.Identities),
	cell.Validate(validateMode),
	cell.Module("identities", "Watches the CiliumIdentities that are registered with SPIRE",
		cell.EnabledBy(cell.When("identities are kept as objects", modeFlags, cluster.Config.IdentitiesInCRD)),
		k8s.RBAC(k8s.Allow("list,watch", v2.CiliumIdentityResource.GroupResource())),
		cell.Provide(newIdentities),
	),

	cell.Metrics(newMetrics),
	cell.ProvidePrivate(newController),
	cell.Provide(func(c *controller) identity.Deletions { return c }),
	cell.Job("register", (*controller).run, cell.Retry(time.Second, time.Minute)),
	cell.Job("watch", (*controller).watch),
)

var modeFlags = []string{"identity-allocation-mode", "kvstore"}

// validateMode warns of a mode in which no entries are created.
func validateMode(shared cluster.Config) error {
	if shared.IdentitiesInCRD() {
		return nil
	}
	return cell.Questionable("mesh-auth-mutual-enabled", "has no effect where identities are kept in etcd alone: only CiliumIdentities are registered with SPIRE")
}
