// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package mistakes

import (
	"go.uber.org/dig"

	"github.com/skep-operator/skep/runtime/cell"
	"github.com/skep-operator/skep/runtime/hive/testdata/mistakes/kvstore"
	"github.com/skep-operator/skep/runtime/job"
)

type (
	badTag struct {
		cell.In
		Client *kvstore.Client `optinal:"true"`
	}
	badOptional struct {
		cell.In
		Client *kvstore.Client `optional:"yes"`
	}
	badGroup struct {
		cell.In
		Clients *kvstore.Client `group:"clients"`
	}
	unexported struct {
		cell.In
		client *kvstore.Client
	}
	groupOut struct {
		cell.Out
		Client *kvstore.Client `group:"clients"`
	}
	digIn struct {
		dig.In
		Client *kvstore.Client
	}
	digOut struct {
		dig.Out
		Client *kvstore.Client
	}
)

func variadic(...*kvstore.Client) *heart            { return nil }
func nothing(*kvstore.Client)                       {}
func onlyError() error                              { return nil }
func errorFirst() (error, *heart)                   { return nil, nil }
func takesBadTag(badTag) *heart                     { return nil }
func takesBadOptional(badOptional) *heart           { return nil }
func takesBadGroup(badGroup) *heart                 { return nil }
func takesUnexported(u unexported) *heart           { _ = u.client; return nil }
func takesDigIn(digIn) *heart                       { return nil }
func returnsDigOut() digOut                         { return digOut{} }
func returnsGroup() groupOut                        { return groupOut{} }
func perModule(*kvstore.Client) *heart              { return nil }
func decorateNothing() *heart                       { return nil }
func decorateTwo(h *heart, b *beat) (*heart, *beat) { return h, b }
func invokeValue(*heart) *beat                      { return nil }
func hookless(*heart) *beat                         { return nil }
func jobless(*heart) *job.Job                       { return nil }
func takesMetrics(*heart) *counters                 { return nil }

type manyOut struct {
	cell.Out
	A01, A02, A03, A04, A05, A06, A07, A08, A09, A10, A11, A12, A13 *heart `group:"hearts"`
	B01, B02, B03, B04, B05, B06, B07, B08, B09, B10, B11, B12, B13 *beat  `group:"beats"`
}

func returnsMany() manyOut { return manyOut{} }

var functions = []Case{
	{Name: "unusable-constructors", Cells: cell.Module("m", "Is full of mistakes",
		cell.Provide(nil, newHeart(nil), "text", (func() *heart)(nil)),
		cell.Provide(variadic, nothing, onlyError, errorFirst, returnsMany),
		cell.ProvidePrivate(returnsGroup),
		cell.ProvidePerModule(perModule),
		cell.Metrics(takesMetrics))},
	{Name: "unusable-parameters", Cells: cell.Module("m", "Is full of mistakes",
		cell.Provide(takesBadTag, takesBadOptional, takesBadGroup, takesUnexported, takesDigIn, returnsDigOut))},
	{Name: "unusable-roots", Cells: cell.Module("m", "Is full of mistakes",
		cell.Invoke(invokeValue), cell.Hook("h", hookless), cell.Job("j", jobless), cell.Hook("n", nil),
		cell.Decorate(decorateNothing), cell.Decorate(decorateTwo))},
	{Name: "unusable-names", Cells: cell.Module("m", "Has names that do not tell apart",
		cell.Hook("sync", none), cell.Job("sync", idle), cell.Hook("sync", none), cell.Job("", idle))},
}

func idle() job.Job { return job.Job{} }
