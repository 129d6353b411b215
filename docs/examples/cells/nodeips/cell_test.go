// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package nodeips_test

import (
	"testing"

	"github.com/skep-operator/skep/docs/examples/cells/nodeips"
	"github.com/skep-operator/skep/resources/kvstore/kvstoretest"
	"github.com/skep-operator/skep/runtime/cell/celltest"
)

func TestCell(t *testing.T) { celltest.Check(t, nodeips.Cell, kvstoretest.Unreachable()...) }
