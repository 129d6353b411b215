// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

// Operator-generic runs every duty that needs no cloud. It is linked with the
// SDK of none.
package main

import (
	"os"

	"github.com/skep-operator/skep/cells"
	"github.com/skep-operator/skep/runtime/command"
	"github.com/skep-operator/skep/runtime/hive"
)

// version is set by the linker.
var version = "devel"

func main() {
	os.Exit(command.Main(cells.Operator,
		hive.Version(version),
		hive.Product("Cilium-Operator"),
		hive.EnvPrefix("CILIUM_"),
		hive.ConfigFile("cilium-operators"),
		hive.MetricsNamespace("cilium_operator"),
	))
}
