// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

// Floating is an operator with one more duty: Services of type LoadBalancer get addresses from Fjord's HTTP API.
package main

import (
	"os"

	"github.com/skep-operator/skep/cells"
)

var version = "devel" // set by the linker

func main() { os.Exit(cells.Main(cells.Operator.WithInTerm("leader", Cell), version)) }
