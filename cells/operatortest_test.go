// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package cells_test

import (
	"slices"
	"testing"

	"github.com/skep-operator/skep/cells"
	"github.com/skep-operator/skep/resources/operatortest"
	"github.com/skep-operator/skep/runtime/cell"
	"github.com/skep-operator/skep/runtime/hive"
)

// Tests of duties run them among the cells that they have in an operator.
func TestOperatorsUnderTestHaveAllResources(t *testing.T) {
	ids := func(set cell.Cell) (ids []string) {
		for _, m := range hive.New("operator", set).Graph().Modules {
			ids = append(ids, m.ID)
		}
		slices.Sort(ids)
		return ids
	}
	if want, got := ids(cells.Resources), ids(cell.Set(operatortest.Resources...)); !slices.Equal(got, want) {
		t.Errorf("operatortest.Resources has the modules %v, cells.Resources has %v", got, want)
	}
}
