// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package cluster

import (
	"fmt"
	"slices"

	"github.com/skep-operator/skep/runtime/cell"
	"github.com/skep-operator/skep/runtime/config"
	"github.com/skep-operator/skep/runtime/graph"
)

// ipamModes are all values of --ipam.
var ipamModes = []string{"cluster-pool", "multi-pool", "kubernetes", "crd", "delegated-plugin", "eni", "azure", "alibabacloud"}

// withoutAllocator are the modes without an allocator in the operator.
var withoutAllocator = []string{"kubernetes", "crd", "delegated-plugin"}

// binaries maps modes to the binary that supports them.
var binaries = map[string]string{
	"cluster-pool": "cilium-operator-generic",
	"eni":          "cilium-operator-aws",
	"azure":        "cilium-operator-azure",
	"alibabacloud": "cilium-operator-alibabacloud",
}

// Allocator annotates the module that allocates addresses in a mode. It holds for a module that replaces it, too,
// unless that has an annotation of its own.
type Allocator struct{ Mode string }

// CarriedOver makes a replacement keep the annotation.
func (Allocator) CarriedOver() {}

// IPAMModes are all values of --ipam: agents know no others.
func IPAMModes() []string { return slices.Clone(ipamModes) }

// checkIPAM reports an IPAM mode without an allocator in this operator: an error if it
// is set on the command line, a warning in a ConfigMap, so that the other duties run.
func checkIPAM(c Config, v *config.Values, g graph.Source, b cell.BuildInfo) error {
	if err := checkName(b.Name, g()); err != nil {
		return err
	}
	if slices.Contains(withoutAllocator, c.IPAM) || hasAllocator(g(), c.IPAM) {
		return nil
	}
	if e, _ := v.Lookup("ipam"); e.Source.Kind != config.FromFlag {
		return cell.Questionable("ipam", "nodes get no addresses: %s allocator is not supported by this version of %s", c.IPAM, b.Name)
	}
	other := ""
	if use := binaries[c.IPAM]; use != "" && use != b.Name {
		other = fmt.Sprintf(" (use %s)", use)
	}
	return cell.Invalid("ipam", "%s doesn't support --ipam=%s%s", b.Name, c.IPAM, other)
}

// checkName rejects the name of a cloud's binary without its allocator: the cluster
// would get no addresses, and a roll-out would go on.
func checkName(binary string, g *graph.Graph) error {
	for mode, name := range binaries {
		if name == binary && mode != DefaultConfig.IPAM && !hasAllocator(g, mode) {
			return fmt.Errorf("%s has no %s allocator: it is not built yet; keep cilium-operator in clusters with --ipam=%s", name, mode, mode)
		}
	}
	return nil
}

func hasAllocator(g *graph.Graph, mode string) bool {
	return slices.ContainsFunc(g.Modules, func(m graph.Module) bool {
		return slices.Contains(m.Annotations, any(Allocator{mode}))
	})
}
