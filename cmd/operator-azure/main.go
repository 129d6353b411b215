// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

// Operator-azure runs every duty, with IPAM of Azure and none of other binaries.
package main

import (
	"os"

	"github.com/skep-operator/skep/cells"
	"github.com/skep-operator/skep/cells/ipam/azure"
	"github.com/skep-operator/skep/resources/cloudipam"
)

// version is set by the linker.
var version = "devel"

var operator = cells.Operator.Without("ipam.clusterpool").Without("ipam.multipool").With(cloudipam.Cell).WithInTerm("leader", azure.Cell)

func main() { os.Exit(cells.Main(operator, version)) }
