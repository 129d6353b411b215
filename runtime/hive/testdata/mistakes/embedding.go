// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package mistakes

import (
	"errors"
	"fmt"
	"reflect"

	"github.com/spf13/pflag"

	"github.com/skep-operator/skep/runtime/cell"
	"github.com/skep-operator/skep/runtime/job"
	"github.com/skep-operator/skep/runtime/lifecycle"
)

type (
	scope  struct{} // of sweep
	widget struct{}
	wheel  struct{}
)

func newScope() scope                           { return scope{} }
func newWidget() *widget                        { return nil }
func sweepWith(scope) lifecycle.Hook            { return none() }
func serveWidget(widget) lifecycle.Hook         { return none() }
func serveStringer(fmt.Stringer) lifecycle.Hook { return none() }
func paint(w *widget) *widget                   { return w }
func paintValue(w widget) widget                { return w }
func newStringer() reflect.Type                 { return nil }
func serveType(reflect.Type) lifecycle.Hook     { return none() }
func newNothing() job.Job                       { return job.Job{} }
func serveWheel(*wheel) lifecycle.Hook          { return none() }

type paintConfig struct{ Color string }

func (c paintConfig) Flags(fs *pflag.FlagSet) { fs.String("color", c.Color, "Color of the paint") }

func (c paintConfig) Validate() error {
	if c.Color == "" {
		return cell.Invalid("color", "must be given")
	}
	return nil
}

var whenPainted = cell.When("something is painted", []string{"colour"}, func(c paintConfig) bool { return c.Color != "" })

// full is a list of which modules take values of each other.
var full = cell.Set(entering,
	cell.Module("sweep", "Sweeps", cell.Provide(newScope)),
	cell.Term("leader",
		cell.Module("ipam", "Has parts", cell.Module("clusterpool", "Is a part", cell.Hook("sweep", sweepWith))),
		cell.Module("painter", "Paints", cell.Config(paintConfig{}), cell.Provide(newWidget))))

// provideWheel is a helper of a library: what it declares is its caller's.
func provideWheel() cell.Cell {
	return cell.Set(
		cell.Provide(cell.Made("library.Provide[wheel]", func() *wheel { return nil })),
		cell.Check(func() error { return nil }),
	)
}

// provideSquare is the same for something that cannot be.
func provideSquare() cell.Cell {
	return cell.Check(cell.Made("library.Provide[square]", func() error { return errors.New("library.Provide[square]: a wheel has no corners") }))
}

var embedding = []Case{
	{Name: "without-twice", Cells: full.Without("painter").Without("painter")},
	{Name: "replace-what-was-removed", Cells: full.Without("ipam").Replace("ipam.clusterpool", cell.Module("mine", "Is better"))},
	{Name: "with-unknown-term-and-nothing-near", Cells: full.WithInTerm("something-else", cell.Module("mine", "Is better"))},
	{Name: "replace-unknown-part", Cells: full.Replace("clusterpool", cell.Module("mine", "Is better"))},
	{Name: "after-unknown-part", Cells: full.With(cell.Module("mine", "Is later", cell.StartAfter("clusterpool", "it is first")))},
	{Name: "list-mistake-hides-what-follows", Cells: full.Replace("swep", cell.Module("mine", "Sweeps better", cell.Hook("h", serveAbsent))), Args: []string{"--color="}},
	{Name: "same-cell-twice", Cells: full.With(cell.Module("painter", "Paints", cell.Config(paintConfig{}), cell.Provide(newWidget), cell.Hook("serve", serveWidget)))},
	{Name: "replacement-lacks-a-type", Cells: full.Replace("sweep", cell.Module("fjord.sweep", "Has not what others take")), Args: []string{"--color=x"}},
	{Name: "removed-module-had-a-type", Cells: full.Without("sweep"), Args: []string{"--color=x"}},
	{Name: "near-miss-private", Cells: cell.Module("m", "Asks for the value", cell.ProvidePrivate(newWidget), cell.Hook("serve", serveWidget))},
	{Name: "interface-of-the-standard-library", Cells: cell.Set(
		cell.Module("m", "Asks for what anything is", cell.Hook("serve", serveStringer)),
		cell.Module("n", "Has one by chance", cell.Provide(newStringer), cell.Hook("serve", serveType)))},
	{Name: "decorated-type-is-missing", Cells: cell.Set(
		cell.Decorate(paintValue),
		cell.Module("m", "Provides the pointer", cell.Provide(newWidget), cell.Hook("serve", func(*widget) lifecycle.Hook { return none() })))},
	{Name: "decorated-type-is-private", Cells: cell.Set(
		cell.Decorate(paint),
		cell.Module("m", "Keeps it", cell.ProvidePrivate(newWidget), cell.Hook("serve", func(*widget) lifecycle.Hook { return none() })))},
	{Name: "condition-names-no-flag", Cells: cell.Module("m", "Is on when painted", cell.Config(paintConfig{Color: "red"}), cell.EnabledBy(whenPainted))},
	{Name: "unusable-titles", Cells: cell.Module("m", "", cell.Job("Run It", newNothing))},
	{Name: "suggestion", Cells: cell.Set(
		cell.Module("library", "Knows how", cell.Suggest(func(t reflect.Type) string {
			if t == reflect.TypeFor[*wheel]() {
				return "declare it with library.Provide"
			}
			return ""
		})),
		cell.Module("m", "Asks", cell.Hook("serve", serveWheel)))},
	{Name: "made-twice", Cells: cell.Set(
		cell.Module("a", "Provides", provideWheel(), cell.Hook("serve", serveWheel)),
		cell.Module("b", "Provides again",
			provideWheel()))},
	{Name: "failed-check", Cells: cell.Module("m", "Has what cannot be", provideSquare())},
}
