// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

// Package lbipam gives addresses to services.
package lbipam

import (
	"github.com/spf13/pflag"

	"github.com/skep-operator/skep/runtime/cell"
	"github.com/skep-operator/skep/runtime/graph/testdata/sample/idle"
	"github.com/skep-operator/skep/runtime/graph/testdata/sample/k8s"
	"github.com/skep-operator/skep/runtime/job"
)

// Config is dropped with the module.
type Config struct{ EnableLBIPAM bool }

// Flags implements cell.Flagger.
func (c Config) Flags(fs *pflag.FlagSet) {
	fs.Bool("enable-lb-ipam", c.EnableLBIPAM, "Give addresses to services")
}

func run(*k8s.Client) job.Job { return idle.Job() }

// Cell is the module.
var Cell = cell.Module("lbipam", "Gives addresses to services", cell.Config(Config{}), cell.Job("run", run))

// Acme is what an embedder puts in its place.
var Acme = cell.Module("acme-lbipam", "Gives addresses to services out of Acme's own pools", cell.Job("run", run))
