// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package cell_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"github.com/skep-operator/skep/runtime/cell"
	"github.com/skep-operator/skep/runtime/config"
	"github.com/skep-operator/skep/runtime/lifecycle"
)

// Whatever is listed, listing it fails nothing and runs nothing.
func TestListingNeverFailsAndRunsNothing(t *testing.T) {
	never := func() { t.Error("listing ran a function") }
	list := cell.Set(
		nil,
		cell.Module("", ""),
		cell.Module("m", "Is odd", nil, cell.Term("in a module")),
		cell.Provide(nil, 3, never), cell.ProvidePrivate(never), cell.PerModule(never), cell.Lasting(never), cell.Metrics(never),
		cell.Invoke(never, nil), cell.Decorate(never), cell.Validate(nil),
		cell.Hook("", nil), cell.Job("", never), cell.EnabledBy(cell.When("", nil, nil)), cell.EnabledBy(cell.Condition{}),
		cell.After("", ""), cell.First(""), cell.Annotate(nil),
		cell.Config(flags{}),
		cell.Hook("h", func() lifecycle.Hook { never(); return nil }),
	)
	for range 2 {
		list = list.With(nil, list).WithIn("", nil).Without("").Replace("", nil).Replace("m", nil).Without("m")
	}
	if list.Declaration() == nil || (cell.Cells{}).Declaration() == nil {
		t.Error("no declaration")
	}
}

type flags struct{}

func (flags) Flags(*pflag.FlagSet) { panic("listing asked for flags") }

func TestInvalid(t *testing.T) {
	err := error(cell.Invalid("cluster-id", "must be between %d and %d", 1, 255))
	if err.Error() != "--cluster-id: must be between 1 and 255" {
		t.Error(err)
	}
	invalid := new(cell.InvalidError)
	if !errors.As(errors.Join(err), &invalid) || invalid.Flag != "cluster-id" || invalid.Problem != "must be between 1 and 255" {
		t.Errorf("%+v", invalid)
	}
}

func TestFromEnv(t *testing.T) {
	fs := pflag.NewFlagSet("", pflag.ContinueOnError)
	fs.String("azure-subscription-id", "", "")
	cell.FromEnv(fs, "azure-subscription-id", "AZURE_SUBSCRIPTION_ID", "AZURE_OTHER")
	if got := fs.Lookup("azure-subscription-id").Annotations[config.EnvAnnotation]; strings.Join(got, " ") != "AZURE_SUBSCRIPTION_ID AZURE_OTHER" {
		t.Error(got)
	}
	defer func() {
		if recover() == nil {
			t.Error("a flag that is not there is accepted")
		}
	}()
	cell.FromEnv(fs, "unknown", "X")
}
