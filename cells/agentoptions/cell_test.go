// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package agentoptions

import (
	"testing"

	"github.com/skep-operator/skep/runtime/cell/celltest"
	"github.com/skep-operator/skep/runtime/waittest"
)

func TestMain(m *testing.M) { waittest.Main(m) }

func TestCell(t *testing.T) { celltest.Check(t, Cell) }
