// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

// Operator-generic runs every duty that needs no cloud. It is linked with the
// SDK of none.
package main

import (
	"os"

	"github.com/skep-operator/skep/cells"
)

// version is set by the linker.
var version = "devel"

func main() { os.Exit(cells.Main(cells.Operator, version)) }
