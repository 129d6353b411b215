// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

// Package election decides who leads.
package election

import (
	"github.com/skep-operator/skep/runtime/cell"
	"github.com/skep-operator/skep/runtime/graph/testdata/sample/cluster"
	"github.com/skep-operator/skep/runtime/graph/testdata/sample/idle"
	"github.com/skep-operator/skep/runtime/graph/testdata/sample/k8s"
	"github.com/skep-operator/skep/runtime/graph/testdata/sample/status"
	"github.com/skep-operator/skep/runtime/job"
	"github.com/skep-operator/skep/runtime/lifecycle"
)

type params struct {
	cell.In
	Client  *k8s.Client
	Cluster cluster.Config
	Leader  lifecycle.Term `name:"leader"`
}

// Elector knows who leads.
type Elector struct{}

func newElector(params) *Elector     { return &Elector{} }
func newRoute(*Elector) status.Offer { return status.Offer{Route: status.Route{Path: "/leader"}} }
func campaign(*Elector) job.Job      { return idle.Job() }

// Cell is the module.
var Cell = cell.Module("leader", "Takes the lease and enters the term",
	cell.Provide(newElector, newRoute),
	cell.Job("campaign", campaign),
)
