// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package mistakes

import (
	"errors"

	"github.com/spf13/pflag"

	"github.com/skep-operator/skep/runtime/cell"
)

type fieldless struct{}

func (fieldless) Flags(fs *pflag.FlagSet) { fs.Int("sync-interval", 1, "Pause") }

type flagless struct{ SyncInterval int }

func (flagless) Flags(*pflag.FlagSet) {}

type undecodable struct{ Handler func() }

func (undecodable) Flags(fs *pflag.FlagSet) { fs.String("handler", "", "Cannot be") }

type byPointer struct{ SyncInterval int }

func (*byPointer) Flags(fs *pflag.FlagSet) { fs.Int("sync-interval", 1, "Pause") }

type twice struct{ SyncInterval int }

func (twice) Flags(fs *pflag.FlagSet) {
	fs.Int("sync-interval", 1, "Pause")
	fs.Int("sync-interval", 1, "Pause")
}

type limits struct{ Low, High int }

func (l limits) Flags(fs *pflag.FlagSet) {
	fs.Int("low", l.Low, "Lower limit")
	fs.Int("high", l.High, "Upper limit")
}

func (l *limits) Validate() error { // found although the struct is given by value
	var errs []error
	if l.Low < 0 {
		errs = append(errs, cell.Invalid("low", "must be at least 0"))
	}
	if l.High > 10 {
		errs = append(errs, cell.Invalid("high", "must be at most %d", 10))
	}
	return errors.Join(errs...)
}

func lowIsLow(l limits, i interval) error {
	if l.Low > l.High {
		return errors.New("low is above high")
	}
	if i.SyncInterval == 0 {
		return cell.Invalid("sync-interval", "must not be 0 when there are limits")
	}
	return nil
}

var configs = []Case{
	{Name: "config-flag-without-field", Cells: cell.Module("m", "Has a flag too many", cell.Config(fieldless{}))},
	{Name: "config-field-without-flag", Cells: cell.Module("m", "Has a field too many", cell.Config(flagless{}))},
	{Name: "config-undecodable-type", Cells: cell.Module("m", "Has a field of an odd type", cell.Config(undecodable{}))},
	{Name: "config-by-pointer", Cells: cell.Module("m", "Gives a pointer", cell.Config(&byPointer{}))},
	{Name: "config-flag-twice", Cells: cell.Module("m", "Declares a flag twice", cell.Config(twice{}))},
	{Name: "invalid-values", Cells: cell.Module("m", "Has limits", cell.Config(limits{1, 2}), cell.Config(interval{1}), cell.Validate(lowIsLow)),
		Args: []string{"--low=-1", "--high=11", "--sync-interval=0", "--debug=maybe"}},
	{Name: "invalid-values-and-graph", Cells: cell.Module("m", "Is wrong in all ways", cell.Config(limits{1, 2}), cell.Hook("h", serveAbsent)),
		Args: []string{"--low=-1"}},
}
