// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package nodesync

import (
	"testing"

	"github.com/skep-operator/skep/resources/kvstore/kvstoretest"
	"github.com/skep-operator/skep/runtime/cell/celltest"
)

func TestCell(t *testing.T) { celltest.Check(t, Cell, kvstoretest.Unreachable()...) }

// The fields are those of the API.
func TestKind(t *testing.T) {
	if err := ciliumNodes.Check(); err != nil {
		t.Error(err)
	}
}
