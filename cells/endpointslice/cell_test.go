// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package endpointslice

import (
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"github.com/skep-operator/skep/resources/cluster"
	"github.com/skep-operator/skep/resources/domain/identity"
	"github.com/skep-operator/skep/resources/explain"
	"github.com/skep-operator/skep/resources/k8s"
	"github.com/skep-operator/skep/resources/reconcile"
	"github.com/skep-operator/skep/resources/stream"
	"github.com/skep-operator/skep/resources/stream/ciliumio"
	"github.com/skep-operator/skep/resources/sweep"
	"github.com/skep-operator/skep/runtime/cell"
	"github.com/skep-operator/skep/runtime/cell/celltest"
)

// around are the cells that this one asks things of.
var around = []cell.Cell{
	cluster.Cell(cluster.DefaultConfig), explain.Cell, k8s.Cell, reconcile.Cell, stream.Cell, ciliumio.Cell, sweep.Cell,
}

const away = "--k8s-api-server=http://127.0.0.1:1"

func TestCell(t *testing.T) {
	t.Run("of endpoints", func(t *testing.T) {
		celltest.Check(t, Cell, celltest.With(around...), celltest.InTerm("leader"),
			celltest.Args(away, "--enable-cilium-endpoint-slice"), celltest.OffArgs(away, "--ces-cleanup-grace=0"))
	})
	t.Run("of pods", func(t *testing.T) {
		celltest.Check(t, Cell, celltest.With(append(around, identities(nobody{}))...), celltest.InTerm("leader"),
			celltest.Args(away, "--enable-cilium-endpoint-slice", "--ces-controller-mode=slim", "--identity-management-mode=operator"))
	})
	t.Run("clean-up", func(t *testing.T) {
		celltest.Check(t, Cell, celltest.With(around...), celltest.InTerm("leader"), celltest.Args(away))
	})
}

// identities is a duty that assigns them.
func identities(a identity.Assignments) cell.Cell {
	return cell.Module("test.identities", "Assigns identities", cell.Provide(func() identity.Assignments { return a }))
}

// nobody has an identity.
type nobody struct{}

func (nobody) Of(types.NamespacedName) (identity.Number, bool)    { return 0, false }
func (nobody) Bearers(identity.Number) int                        { return 0 }
func (nobody) Observe(func(types.NamespacedName)) (cancel func()) { return func() {} }
func (nobody) Complete() <-chan struct{}                          { return make(chan struct{}) }
