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

// asked are duties that are not built, and that options of other cells ask for.
var asked = []struct {
	duty, flag string
	when       func(*config.Values) bool
}{
	{"clustermesh", "clustermesh-enable-mcs-api", isOn("clustermesh-enable-mcs-api")},
	{"kvstore nodes", "synchronize-k8s-nodes", inKVStore(isOn("synchronize-k8s-nodes"))},
	{"kvstore services", "synchronize-k8s-services", inKVStore(isOn("synchronize-k8s-services"))},
	{"kvstore identities", "identity-allocation-mode", inKVStore(func(v *config.Values) bool {
		e, known := v.Lookup("identity-allocation-mode")
		return known && e.Value != "crd"
	})},
}

func isOn(flag string) func(*config.Values) bool {
	return func(v *config.Values) bool {
		e, known := v.Lookup(flag)
		return known && !asksForNothing(e.Value)
	}
}

// inKVStore is what counts only where the key-value store is in use.
func inKVStore(when func(*config.Values) bool) func(*config.Values) bool {
	return func(v *config.Values) bool { return isOn("kvstore")(v) && when(v) }
}

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
	for _, a := range asked {
		if a.when(v) {
			byDuty[a.duty] = append(byDuty[a.duty], a.flag)
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
