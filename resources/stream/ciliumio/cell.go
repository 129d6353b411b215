// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package ciliumio

import (
	"github.com/skep-operator/skep/resources/k8s"
	"github.com/skep-operator/skep/resources/stream"
	"github.com/skep-operator/skep/runtime/cell"
)

// Cell offers the streams of this package to all modules.
var Cell = cell.Module("stream.ciliumio", "Watches the custom resources of cilium.io that duties share",
	cell.EnabledBy(k8s.InUse),
	stream.Provide(Nodes),
	stream.Provide(Endpoints),
	stream.Provide(Identities),
	stream.Provide(EndpointSlices),
)
