// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package pending

import (
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"github.com/skep-operator/skep/runtime/cell"
	"github.com/skep-operator/skep/runtime/config"
)

// Cell accepts the options of duties that are not built yet.
var Cell = cell.Module("pending", "Accepts the options of duties that are not built yet, and names them once",
	cell.Accept(declare),
	cell.Invoke(report),
)

func declare(fs *pflag.FlagSet) {
	for _, f := range flags {
		usage := "Not built yet: " + f.duty
		if f.removed {
			usage = "Removed from the original"
		}
		fs.Var(text(f), f.name, usage)
		_ = fs.MarkHidden(f.name)
		if f.kind == "bool" {
			fs.Lookup(f.name).NoOptDefVal = "true"
		}
	}
}

// text is a flag's value that nobody reads.
type text flag

func (t text) Set(string) error { return nil }
func (t text) String() string   { return t.value }
func (t text) Type() string     { return t.kind }

// report says in one line which options were given that do nothing.
func report(v *config.Values, log *slog.Logger) {
	byDuty := map[string][]string{}
	var removed []string
	for _, f := range flags {
		e, _ := v.Lookup(f.name)
		switch {
		case e.Source.Kind == config.FromDefault:
		case f.removed && e.Source.Kind == config.FromFlag:
			removed = append(removed, f.name)
		case !f.removed:
			byDuty[f.duty] = append(byDuty[f.duty], f.name)
		}
	}
	if len(removed) > 0 {
		log.Warn("flags that were removed are ignored", "flags", strings.Join(removed, ", "))
	}
	if len(byDuty) == 0 {
		return
	}
	duties := slices.Sorted(maps.Keys(byDuty))
	log.Warn("not built yet, and asked for by the configuration: " + strings.Join(duties, ", "))
	for _, d := range duties {
		log.Debug(fmt.Sprintf("options of %s do nothing: %s", d, strings.Join(byDuty[d], ", ")))
	}
}
