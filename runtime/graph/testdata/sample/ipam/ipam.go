// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

// Package ipam gives CIDRs to nodes.
package ipam

import (
	"github.com/spf13/pflag"

	"github.com/skep-operator/skep/runtime/cell"
	"github.com/skep-operator/skep/runtime/graph/testdata/sample/cluster"
	"github.com/skep-operator/skep/runtime/graph/testdata/sample/idle"
	"github.com/skep-operator/skep/runtime/graph/testdata/sample/k8s"
	"github.com/skep-operator/skep/runtime/graph/testdata/sample/status"
	"github.com/skep-operator/skep/runtime/graph/testdata/sample/stream"
	"github.com/skep-operator/skep/runtime/job"
)

// Config says who gives addresses.
type Config struct{ IPAM string }

// Flags implements cell.Flagger.
func (c Config) Flags(fs *pflag.FlagSet) { fs.String("ipam", c.IPAM, "Who gives addresses to pods") }

// PoolConfig is the CIDRs to give.
type PoolConfig struct{ ClusterPoolIPv4CIDR []string }

// Flags implements cell.Flagger.
func (c PoolConfig) Flags(fs *pflag.FlagSet) {
	fs.StringSlice("cluster-pool-ipv4-cidr", c.ClusterPoolIPv4CIDR, "CIDRs that nodes get theirs from")
}

func mode(name string) cell.Condition {
	return cell.When("the IPAM mode is "+name, []string{"ipam"}, func(c Config) bool { return c.IPAM == name })
}

type (
	// Nodes are the nodes that want CIDRs.
	Nodes = *stream.Resource[stream.CiliumNode]
	// Allocator gives CIDRs.
	Allocator interface{ Give() }
	// Pools outlive the term.
	Pools struct{}
	pool  struct{}
	eni   struct{}
)

func (pool) Give() {}

func onlyOurs(n Nodes, _ Config) Nodes { return n }

func newPools(PoolConfig) *Pools                            { return &Pools{} }
func newPool(*Pools, *k8s.Client, cluster.Config) Allocator { return pool{} }
func newRoute(*Pools) status.Offer                          { return status.Offer{Route: status.Route{Path: "/ipam"}} }
func assign(Allocator, Nodes) job.Job                       { return idle.Job() }

func newENI(*k8s.Client) *eni    { return &eni{} }
func attach(*eni, Nodes) job.Job { return idle.Job() }

// Cell is the module: modes that exclude each other around a decorated stream.
var Cell = cell.Module("ipam", "Gives every node its share of addresses",
	cell.Config(Config{IPAM: "cluster-pool"}),
	cell.Decorate(onlyOurs),
	cell.Module("clusterpool", "Cuts node CIDRs out of the pool of the cluster",
		cell.Config(PoolConfig{ClusterPoolIPv4CIDR: []string{"10.0.0.0/8"}}),
		cell.EnabledBy(mode("cluster-pool")),
		cell.ProvideProcess(newPools, newRoute),
		cell.Provide(newPool),
		cell.Job("assign", assign),
	),
	cell.Module("eni", "Attaches network interfaces & addresses to AWS <instances>",
		cell.EnabledBy(mode("eni")),
		cell.ProvidePrivate(newENI),
		cell.Job("attach", attach),
	),
)
