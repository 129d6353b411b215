// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package secretref

import (
	"github.com/skep-operator/skep/resources/k8s"
	"github.com/skep-operator/skep/runtime/cell"
)

// Cell has the options of this package.
var Cell = cell.Module("secretref", "Has the options that say whose secrets are copied, and where to",
	cell.Config(Config{
		EnableIngressSecretsSync: true, EnableGatewayAPISecretsSync: true, PolicySecretsNamespace: "cilium-secrets",
	}),
	cell.EnabledBy(k8s.InUse),
)
