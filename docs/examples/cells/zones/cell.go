// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package zones

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/skep-operator/skep/resources/reconcile"
	"github.com/skep-operator/skep/resources/stream"
	"github.com/skep-operator/skep/runtime/cell"
)

// region declaration

// Cell tells every CiliumNode which zone its node is in.
var Cell = cell.Module("zones", "Tells every CiliumNode which zone its node is in",
	cell.Config(Config{ZoneLabel: corev1.LabelTopologyZone}),
	cell.EnabledBy(cell.When("a label names zones", []string{"zone-label"}, func(c Config) bool { return c.ZoneLabel != "" })),
	cell.Metrics(newMetrics),
	stream.Provide(ciliumNodes),
	reconcile.Controller(newController,
		reconcile.For[*controller](ciliumNodes),
		reconcile.Watches(stream.Nodes, (*controller).nodeChanged),
		reconcile.Writes[*controller](ciliumNodes.Resource())),
)

// endregion

// region config

// Config says where zones are found.
type Config struct {
	ZoneLabel string `flag:"zone-label" usage:"Label of nodes that names their zone; empty for no zones"`
}

// Validate implements the check of config structs.
func (c Config) Validate() error {
	if c.ZoneLabel != "" && len(validation.IsQualifiedName(c.ZoneLabel)) > 0 {
		return cell.Invalid("zone-label", "must be the name of a label, such as %s", corev1.LabelTopologyZone)
	}
	return nil
}

// endregion
