// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package sweep

import (
	"github.com/skep-operator/skep/runtime/cell"
	"testing"

	"github.com/skep-operator/skep/runtime/cell/celltest"
	"github.com/skep-operator/skep/runtime/waittest"
)

func TestMain(m *testing.M) { waittest.Main(m) }

func TestCell(t *testing.T) { celltest.Check(t, Cell) }

func TestMaxShare(t *testing.T) {
	for share, ok := range map[float64]bool{0: true, 0.5: true, 1: true, -0.1: false, 1.1: false} {
		if err := cell.ValidateConfig(Config{SweepMaxShare: share}); (err == nil) != ok {
			t.Errorf("%v: %v", share, err)
		}
	}
}
