// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

// Acmecloud is an operator with an IPAM mode of its own: addresses of nodes come from Acme's cloud. It is a reference for
// providers: provider.go is all that a cloud needs. Its mode is called alibabacloud, since agents know the names of modes.
package main

import (
	"os"

	"github.com/skep-operator/skep/cells"
	"github.com/skep-operator/skep/resources/cloudipam"
)

var version = "devel" // set by the linker

func main() {
	os.Exit(cells.Main(cells.Operator.With(cloudipam.Cell).WithInTerm("leader", Cell), version))
}
