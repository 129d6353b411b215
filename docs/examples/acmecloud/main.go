// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

// Acmecloud is an operator with an IPAM mode of its own: addresses of nodes come from Acme's cloud. It is a reference for
// providers: provider.go is all that a cloud needs. Its mode is called alibabacloud, since agents know the names of modes; the set
// cells.Operator has no provider of that name, nor of another cloud.
package main

import (
	"os"

	"github.com/skep-operator/skep/cells"
	"github.com/skep-operator/skep/resources/cloudipam"
	"github.com/skep-operator/skep/resources/cluster"
	"github.com/skep-operator/skep/runtime/hive"
)

var version = "devel" // set by the linker

func main() {
	shared := cluster.DefaultConfig
	shared.IPAM = "alibabacloud" // without --ipam
	acme := cells.Operator.
		Replace("cluster", cluster.Cell(shared)).
		With(cloudipam.Cell).      // options and streams of all clouds
		WithInTerm("leader", Cell) // what writes belongs to the term
	os.Exit(cells.Main(acme, version, hive.Product("Acme-Operator")))
}
