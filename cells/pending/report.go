// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package pending

import (
	"errors"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/spf13/pflag"

	"github.com/skep-operator/skep/runtime/cell"
	"github.com/skep-operator/skep/runtime/config"
	"github.com/skep-operator/skep/runtime/graph"
	"github.com/skep-operator/skep/runtime/health"
)

// reportRemoved logs flags on the command line that the original has removed.
func reportRemoved(v *config.Values, log *slog.Logger) {
	var removed []string
	for _, f := range flags {
		if e, _ := v.Lookup(f.name); f.removed && e.Source.Kind == config.FromFlag {
			removed = append(removed, f.name)
		}
	}
	if len(removed) > 0 {
		log.Warn("ignoring removed flags", "flags", strings.Join(removed, ", "))
	}
}

// checkTypes reports values that do not have the type of their option. No module reads them, and the original does not
// start with them.
func checkTypes(v *config.Values) error {
	var errs []error
	for _, f := range flags {
		e, _ := v.Lookup(f.name)
		if allowed := f.allowed(e.Value); v.Given(f.name) && !f.removed && allowed != "" {
			errs = append(errs, cell.Questionable(f.name, "must be %s; cilium-operator does not start with it, and no duty of this operator reads it yet", allowed))
		}
	}
	return errors.Join(errs...)
}

// allowed describes the valid values of the option if the value is invalid. A flag of the same type parses it, as in the
// original.
func (f flag) allowed(value string) string {
	switch {
	case f.name == serviceModeFlag && !slices.Contains(serviceModes, value):
		return "one of " + strings.Join(serviceModes, ", ")
	case f.kind != "duration":
		return ""
	}
	fs := pflag.NewFlagSet("", pflag.ContinueOnError)
	fs.Duration(f.name, 0, "")
	if _, err := strconv.Atoi(value); fs.Set(f.name, value) == nil || err == nil { // viper reads a bare number
		return ""
	}
	return "a duration such as 1m30s"
}

// section lists the enabled duties that are not implemented, for the status output.
type section struct {
	cell.Out

	Section health.Section `group:"status sections"`
}

func newSection(g graph.Source) section {
	notBuilt := sync.OnceValue(func() []graph.NotBuilt { return g().NotBuilt }) // that does not change
	return section{Section: health.Section{
		Title: "Not built yet", Columns: []string{"DUTY", "ASKED FOR BY", "WHAT IT WOULD DO"},
		Rows: func() [][]string {
			var rows [][]string
			for _, n := range notBuilt() {
				if n.Asked.Holds {
					rows = append(rows, []string{n.ID, strings.Join(n.Asked.Flags, ", "), n.Title})
				}
			}
			return rows
		},
	}}
}
