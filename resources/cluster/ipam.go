// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package cluster

import (
	"fmt"
	"log/slog"
	"slices"

	"github.com/skep-operator/skep/runtime/cell"
	"github.com/skep-operator/skep/runtime/config"
	"github.com/skep-operator/skep/runtime/graph"
	"github.com/skep-operator/skep/runtime/health"
)

// ipamModes are all values of --ipam.
var ipamModes = []string{"cluster-pool", "multi-pool", "kubernetes", "crd", "delegated-plugin", "eni", "azure", "alibabacloud"}

// withoutAllocator are the modes in which the operator has nothing to do.
var withoutAllocator = []string{"kubernetes", "crd", "delegated-plugin"}

// binaries name the program to use for a mode that another one lacks.
var binaries = map[string]string{
	"cluster-pool": "cilium-operator-generic",
	"eni":          "cilium-operator-aws",
	"azure":        "cilium-operator-azure",
	"alibabacloud": "cilium-operator-alibabacloud",
}

// Allocator annotates the module that gives out addresses in a mode.
type Allocator struct{ Mode string }

// checkIPAM finds out when no module of this operator serves the IPAM mode. On
// the command line that is an error. In a ConfigMap it is reported, and the
// other duties go on.
func checkIPAM(c Config, v *config.Values, g graph.Source, b cell.Binary, h health.Reporter, log *slog.Logger) error {
	if slices.Contains(withoutAllocator, c.IPAM) || hasAllocator(g(), c.IPAM) {
		return nil
	}
	if e, _ := v.Lookup("ipam"); e.Source.Kind == config.FromFlag {
		other := ""
		if use := binaries[c.IPAM]; use != "" {
			other = fmt.Sprintf(" (use %s)", use)
		}
		return cell.Invalid("ipam", "%s doesn't support --ipam=%s%s", b.Name, c.IPAM, other)
	}
	err := fmt.Errorf("%s allocator is not supported by this version of %s", c.IPAM, b.Name)
	h.Part("ipam").Degraded("nodes get no addresses", err)
	log.Error("nodes get no addresses", "error", err)
	return nil
}

func hasAllocator(g *graph.Graph, mode string) bool {
	return slices.ContainsFunc(g.Modules, func(m graph.Module) bool {
		return slices.Contains(m.Annotations, any(Allocator{mode}))
	})
}
