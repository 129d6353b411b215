// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package endpointslice

import (
	"iter"
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"github.com/skep-operator/skep/resources/domain/identity"
	"github.com/skep-operator/skep/resources/operatortest"
	"github.com/skep-operator/skep/runtime/cell"
	"github.com/skep-operator/skep/runtime/cell/celltest"
)

const away = "--k8s-api-server=http://127.0.0.1:1"

func TestCell(t *testing.T) {
	t.Run("of endpoints", func(t *testing.T) {
		celltest.Check(t, Cell, celltest.With(operatortest.Resources...), celltest.InTerm("leader"),
			celltest.Args(away, "--enable-cilium-endpoint-slice"), celltest.OffArgs(away, "--ces-cleanup-grace=0"))
	})
	t.Run("of pods", func(t *testing.T) {
		celltest.Check(t, Cell, celltest.With(append(slices.Clone(operatortest.Resources), identities(noIdentities{}))...), celltest.InTerm("leader"),
			celltest.Args(away, "--enable-cilium-endpoint-slice", "--ces-controller-mode=slim", "--identity-management-mode=operator"),
			celltest.OffArgs(away, "--ces-cleanup-grace=0"))
	})
	t.Run("clean-up", func(t *testing.T) {
		celltest.Check(t, Cell, celltest.With(operatortest.Resources...), celltest.InTerm("leader"), celltest.Args(away),
			celltest.OffArgs(away, "--ces-cleanup-grace=0"))
	})
}

// identities is a duty that assigns them.
func identities(a identity.Assignments) cell.Cell {
	return cell.Module("test.identities", "Assigns identities", cell.Provide(func() identity.Assignments { return a }))
}

// noIdentities are identities of no pod.
type noIdentities struct{}

func (noIdentities) ForPod(types.NamespacedName) (identity.Number, bool) { return 0, false }
func (noIdentities) Wanted(identity.Number) bool                         { return false }
func (noIdentities) All(types.NamespacedName) iter.Seq[identity.Number] {
	return slices.Values[[]identity.Number](nil)
}
func (noIdentities) Observe(func(types.NamespacedName)) (cancel func()) { return func() {} }
func (noIdentities) Complete() <-chan struct{}                          { return make(chan struct{}) }
func (noIdentities) Whole() error                                       { return nil }
