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
		cell.Provide(nil, 3, never), cell.ProvidePrivate(never), cell.ProvidePerModule(never), cell.ProvideProcess(never), cell.Metrics(never),
		cell.Invoke(never, nil), cell.Decorate(never), cell.Validate(nil),
		cell.Hook("", nil), cell.Job("", never), cell.EnabledBy(cell.When("", nil, nil)), cell.EnabledBy(cell.Condition{}),
		cell.StartAfter("", ""), cell.StartFirst(""), cell.Annotate(nil),
		cell.Config(flags{}),
		cell.Hook("h", func() lifecycle.Hook { never(); return nil }),
	)
	for range 2 {
		list = list.With(nil, list).WithInTerm("", nil).Without("").Replace("", nil).Replace("m", nil).Without("m")
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

type bounded struct {
	Low  int `flag:"low" usage:"Low" min:"1"`
	High int `flag:"high" usage:"High"`
}

func (c bounded) Validate() error {
	var errs []error
	if c.High < c.Low+2 {
		errs = append(errs, cell.Invalid("high", "must be at least --low + 2"), cell.Invalid("low", "must be at most --high - 2"))
	}
	return errors.Join(errs...)
}

// What the method says of a flag is left out where the tags say something already.
func TestValidateConfig(t *testing.T) {
	for want, c := range map[string]bounded{
		"": {1, 3},
		"--high: must be at least --low + 2\n--low: must be at most --high - 2": {1, 1},
		"--low: must be at least 1\n--high: must be at least --low + 2":         {0, 0},
	} {
		got := ""
		if err := cell.ValidateConfig(&c); err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("%+v: %q, want %q", c, got, want)
		}
	}
}
