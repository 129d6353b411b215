// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

// Package crds writes the definitions.
package crds

import (
	"github.com/spf13/pflag"

	"github.com/skep-operator/skep/runtime/cell"
	"github.com/skep-operator/skep/runtime/graph/testdata/sample/idle"
	"github.com/skep-operator/skep/runtime/graph/testdata/sample/k8s"
	"github.com/skep-operator/skep/runtime/lifecycle"
)

// Config says whether to write them.
type Config struct{ SkipCRDCreation bool }

// Flags implements cell.Flagger.
func (c Config) Flags(fs *pflag.FlagSet) {
	fs.Bool("skip-crd-creation", c.SkipCRDCreation, "Leave the definitions to somebody else")
}

func install(*k8s.Client) lifecycle.Hook { return idle.Hook() }

// Cell is the module.
var Cell = cell.Module("crds", "Creates and updates the CustomResourceDefinitions",
	cell.Config(Config{}),
	cell.EnabledBy(cell.When("CRDs are ours to write", []string{"skip-crd-creation"}, func(c Config) bool { return !c.SkipCRDCreation })),
	cell.StartFirst("objects can only be written once their CRD exists"),
	cell.Hook("install", install),
)
