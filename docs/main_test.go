// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package docs

import (
	"fmt"
	"os"
	"testing"

	"github.com/skep-operator/skep/cells"
	"github.com/skep-operator/skep/cells/crds"
	"github.com/skep-operator/skep/cells/ipam/alibabacloud"
	"github.com/skep-operator/skep/cells/ipam/aws"
	"github.com/skep-operator/skep/cells/ipam/azure"
	"github.com/skep-operator/skep/cells/ipam/clusterpool"
	"github.com/skep-operator/skep/resources/cloudipam"
	"github.com/skep-operator/skep/resources/clustertest"
	"github.com/skep-operator/skep/runtime/cell"
	"github.com/skep-operator/skep/runtime/command"
	"github.com/skep-operator/skep/runtime/hive"
	"github.com/skep-operator/skep/runtime/waittest"
)

//go:generate go mod tidy -C examples/vendor
//go:generate go mod tidy -C examples/floating
//go:generate go mod tidy -C examples/acmecloud
//go:generate go test -count=1 -short . -run "TestDocuments|TestReference|TestReadme" -update

// asOperator makes the test binary an operator, so that documents show what a
// process prints: "all" is the whole one, "two" has two duties, so that what
// documents show of a running one does not change with every duty that is added.
const asOperator = "SKEP_DOCS_OPERATOR"

// everything is the operator with all clouds.
var everything = cells.Operator.With(cloudipam.Cell).WithInTerm("leader", aws.Cell, azure.Cell, alibabacloud.Cell)

var operators = map[string]cell.Cell{
	"all": everything,
	"two": cell.Set(cells.Resources, cells.Shell, cell.Term("leader", crds.Cell, clusterpool.Cell)),
}

func TestMain(m *testing.M) {
	if set := operators[os.Getenv(asOperator)]; set != nil {
		os.Exit(command.Main(set,
			hive.Version("devel"), hive.EnvPrefix("CILIUM_"), hive.MetricsNamespace("cilium_operator")))
	}
	waittest.Main(building{clustertest.Wrap(m)})
}

// programs is the folder of the programs that tests build once for all of them.
var programs string

// building makes a folder for programs while tests run.
type building struct{ inner waittest.Runner }

func (b building) Run() int {
	var err error
	if programs, err = os.MkdirTemp("", "skep-docs-"); err != nil {
		fmt.Fprintln(os.Stderr, "docs: make a folder for programs:", err)
		return 1
	}
	defer os.RemoveAll(programs)
	return b.inner.Run()
}
