// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package cells

import (
	"github.com/skep-operator/skep/runtime/cell"
	"github.com/skep-operator/skep/runtime/command"
	"github.com/skep-operator/skep/runtime/hive"
)

// Main runs the operator of a list of cells with the process' arguments, and returns the exit code. It takes options
// from the same places as the original, and prints its version as the original does; opts change that.
func Main(set cell.Cell, version string, opts ...hive.Option) int {
	return command.Main(set, append([]hive.Option{
		hive.Version(version),
		hive.Product("Cilium-Operator"),
		hive.EnvPrefix("CILIUM_"),
		hive.ConfigFile("cilium-operators"),
		hive.MetricsNamespace("cilium_operator"),
	}, opts...)...)
}
