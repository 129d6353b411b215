// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package reconcile

import (
	"testing"

	"github.com/skep-operator/skep/runtime/cell/celltest"
)

func TestCell(t *testing.T) { celltest.Check(t, Cell) }
