// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

// Operator runs every duty.
package main

import (
	"os"

	"github.com/skep-operator/skep/cells"
	"github.com/skep-operator/skep/cells/ipam/alibabacloud"
	"github.com/skep-operator/skep/cells/ipam/aws"
	"github.com/skep-operator/skep/cells/ipam/azure"
	"github.com/skep-operator/skep/resources/cloudipam"
)

// version is set by the linker.
var version = "devel"

var withClouds = cells.Operator.With(cloudipam.Cell).WithInTerm("leader", aws.Cell, azure.Cell, alibabacloud.Cell)

func main() { os.Exit(cells.Main(withClouds, version)) }
