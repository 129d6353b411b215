// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package envoy

import (
	"github.com/skep-operator/skep/resources/k8s"
	"github.com/skep-operator/skep/resources/stream"
	"github.com/skep-operator/skep/runtime/cell"
)

// Cell offers the streams and the options of this package to all modules.
var Cell = cell.Module("envoy", "Watches the configurations of Envoy that duties write",
	cell.Config(Config{IngressSecretsNamespace: "cilium-secrets", GatewayAPISecretsNamespace: "cilium-secrets", ProxyIdleTimeoutSeconds: 60, ProxyStreamIdleTimeoutSeconds: 300, MaxRegexProgramSize: 100}),
	cell.EnabledBy(k8s.InUse),
	cell.Validate(checkRedirects),
	cell.Validate(checkPrograms),
	stream.Provide(Objects),
)
