// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package pending

import (
	"log/slog"
	"maps"
	"slices"
	"strings"

	"github.com/skep-operator/skep/runtime/config"
)

// report says in one line which options were given that do nothing, and in
// another which flags of the command line are gone for good.
func report(v *config.Values, log *slog.Logger) {
	byDuty := map[string][]string{}
	var removed []string
	for _, f := range flags {
		e, _ := v.Lookup(f.name)
		switch {
		case e.Source.Kind == config.FromDefault:
		case f.removed && e.Source.Kind == config.FromFlag:
			removed = append(removed, f.name)
		case !f.removed && !asksForNothing(e.Value):
			byDuty[f.duty] = append(byDuty[f.duty], f.name)
		}
	}
	if len(removed) > 0 {
		log.Warn("flags that were removed are ignored", "flags", strings.Join(removed, ", "))
	}
	if len(byDuty) == 0 {
		return
	}
	var duties []string
	for _, d := range slices.Sorted(maps.Keys(byDuty)) {
		duties = append(duties, d+" ("+strings.Join(byDuty[d], ", ")+")")
	}
	log.Warn("not built yet: these duties, and so their options do nothing", "duties", strings.Join(duties, "; "))
}

// asksForNothing reports whether a value switches something off: there is
// nothing to be missed then.
func asksForNothing(value string) bool {
	switch strings.TrimSpace(value) {
	case "", "false", "f", "F", "False", "FALSE", "0", "0s", "{}", "[]":
		return true
	}
	return false
}
