// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package cloudipam_test

import (
	"testing"

	"github.com/skep-operator/skep/resources/cloudipam"
	"github.com/skep-operator/skep/resources/cloudipam/cloudtest"
	"github.com/skep-operator/skep/resources/operatortest"
	"github.com/skep-operator/skep/resources/outside"
	"github.com/skep-operator/skep/runtime/cell"
	"github.com/skep-operator/skep/runtime/cell/celltest"
)

func TestMain(m *testing.M) { operatortest.Main(m) }

const unreachable = "--k8s-api-server=http://127.0.0.1:1"

// duty is the IPAM duty of a cloud in memory.
func duty(c *cloudtest.Cloud, release bool) cell.Cell {
	return cloudipam.Module("ipam.memory", "Allocates addresses of a cloud in memory to nodes", "eni", "ec2",
		func(d *outside.Door) cloudipam.Provider { return cloudtest.NewProvider(c, d) },
		cell.Decorate(func(c cloudipam.Config) cloudipam.Config {
			c.ReleaseExcessIPs = release
			return c
		}))
}

func TestModule(t *testing.T) {
	celltest.Check(t, duty(cloudtest.NewCloud("10.0.0.0/24"), true),
		celltest.With(append(operatortest.Resources, cloudipam.Cell)...), celltest.InTerm("leader"), celltest.ModuleID("ipam.memory"),
		celltest.Args(unreachable, "--ipam=eni"), celltest.OffArgs(unreachable, "--ipam=kubernetes"))
}

func TestCell(t *testing.T) {
	celltest.Check(t, cloudipam.Cell, celltest.With(operatortest.Resources...),
		celltest.Args(unreachable), celltest.OffArgs("--enable-k8s=false"))
}
