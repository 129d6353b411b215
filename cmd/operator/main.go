// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

// Operator runs every duty.
package main

import (
	"os"

	"github.com/skep-operator/skep/cells"
	"github.com/skep-operator/skep/runtime/cell"
	"github.com/skep-operator/skep/runtime/command"
	"github.com/skep-operator/skep/runtime/hive"
)

// version is set by the linker.
var version = "devel"

func main() { os.Exit(run(cells.Operator)) }

func run(set cell.Cells) int {
	return command.Main(set,
		hive.Version(version),
		hive.Product("Cilium-Operator"),
		hive.EnvPrefix("CILIUM_"),
		hive.ConfigFile("cilium-operators"),
		hive.MetricsNamespace("cilium_operator"),
	)
}
