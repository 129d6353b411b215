// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

// Operator-alibabacloud runs every duty, with IPAM of Alibaba Cloud and none of other binaries.
package main

import (
	"os"

	"github.com/skep-operator/skep/cells"
	"github.com/skep-operator/skep/cells/ipam/alibabacloud"
	"github.com/skep-operator/skep/resources/cloudipam"
)

// version is set by the linker.
var version = "devel"

var operator = cells.Operator.Without("ipam.clusterpool").Without("ipam.multipool").With(cloudipam.Cell).WithInTerm("leader", alibabacloud.Cell)

func main() { os.Exit(cells.Main(operator, version)) }
