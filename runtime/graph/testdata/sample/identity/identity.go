// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

// Package identity gives numbers to label sets.
package identity

import (
	"time"

	"github.com/spf13/pflag"

	"github.com/skep-operator/skep/runtime/cell"
	"github.com/skep-operator/skep/runtime/graph/testdata/sample/idle"
	"github.com/skep-operator/skep/runtime/graph/testdata/sample/k8s"
	"github.com/skep-operator/skep/runtime/graph/testdata/sample/kvstore"
	"github.com/skep-operator/skep/runtime/graph/testdata/sample/stream"
	"github.com/skep-operator/skep/runtime/job"
)

// GCConfig says how often to sweep.
type GCConfig struct {
	IdentityGCInterval time.Duration
	Rate               int `flag:"identity-gc-rate"`
}

// Flags implements cell.Flagger.
func (c GCConfig) Flags(fs *pflag.FlagSet) {
	fs.Duration("identity-gc-interval", c.IdentityGCInterval, "Time between sweeps; 0 turns them off")
	fs.Int("identity-gc-rate", c.Rate, "Identities deleted per sweep at most")
}

type params struct {
	cell.In
	Client  *k8s.Client
	Pods    *stream.Resource[stream.Pod]
	KVStore *kvstore.Client `optional:"true"`
}

// Allocator gives the numbers.
type Allocator interface{ Allocate() }

type allocator struct{}

func (allocator) Allocate() {}

func newAllocator(params) Allocator { return allocator{} }
func allocate(Allocator) job.Job    { return idle.Job() }

type sweeper struct{}

func newSweeper(GCConfig, Allocator, *k8s.Client) *sweeper { return &sweeper{} }
func sweep(*sweeper) job.Job                               { return idle.Job() }

// Cell is the module, with another nested in it.
var Cell = cell.Module("identity", "Gives every label set a number",
	cell.Provide(newAllocator),
	cell.Job("allocate", allocate),
	cell.Module("gc", "Deletes identities that nobody uses",
		cell.Config(GCConfig{IdentityGCInterval: 15 * time.Minute, Rate: 2500}),
		cell.EnabledBy(cell.When("identities are swept", []string{"identity-gc-interval"}, func(c GCConfig) bool { return c.IdentityGCInterval > 0 })),
		cell.ProvidePrivate(newSweeper),
		cell.Job("sweep", sweep),
	),
)
