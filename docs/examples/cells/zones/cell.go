// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package zones

import (
	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"

	v2 "github.com/skep-operator/skep/resources/api/v2"
	"github.com/skep-operator/skep/resources/k8s"
	"github.com/skep-operator/skep/resources/stream"
	"github.com/skep-operator/skep/runtime/cell"
)

// region declaration

// Cell tells every CiliumNode which zone its node is in.
var Cell = cell.Module("zones", "Tells every CiliumNode which zone its node is in",
	cell.Config(Config{ZoneLabel: corev1.LabelTopologyZone}),
	cell.EnabledBy(cell.When("a label names zones", []string{"zone-label"}, func(c Config) bool { return c.ZoneLabel != "" })),
	k8s.RBAC(
		k8s.Allow("list,watch", schema.GroupResource{Resource: "nodes"}),
		k8s.Allow("get,list,watch,update", v2.CiliumNodeResource.GroupResource()),
	),

	stream.Provide(told),
	cell.Metrics(newMetrics),
	cell.ProvidePrivate(newTeller),
	cell.Job("write", (*teller).write),
	cell.Job("nodes", (*teller).seeNodes),
	cell.Job("cilium-nodes", (*teller).seeCiliumNodes),
)

// endregion

// region config

// Config says where zones are found.
type Config struct {
	ZoneLabel string
}

// Flags implements cell.Flagger.
func (c Config) Flags(fs *pflag.FlagSet) {
	fs.String("zone-label", c.ZoneLabel, "Label of nodes that names their zone; empty for no zones")
}

// Validate implements the check of config structs.
func (c Config) Validate() error {
	if c.ZoneLabel != "" && len(validation.IsQualifiedName(c.ZoneLabel)) > 0 {
		return cell.Invalid("zone-label", "must be the name of a label, such as %s", corev1.LabelTopologyZone)
	}
	return nil
}

// endregion
