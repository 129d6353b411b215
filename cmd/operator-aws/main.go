// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

// Operator-aws runs every duty, with IPAM of AWS.
package main

import (
	"os"

	"github.com/skep-operator/skep/cells"
	"github.com/skep-operator/skep/cells/ipam/aws"
	"github.com/skep-operator/skep/resources/cloudipam"
)

// version is set by the linker.
var version = "devel"

func main() {
	os.Exit(cells.Main(cells.Operator.With(cloudipam.Cell).WithInTerm("leader", aws.Cell), version))
}
