// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package hive

import (
	"errors"
	"fmt"

	"github.com/skep-operator/skep/runtime/config"
	"github.com/skep-operator/skep/runtime/internal/decl"
	"github.com/skep-operator/skep/runtime/internal/resolve"
)

// collectOptions declares the options of all cells, those of disabled modules
// included. Ignored flags come last, so that a declared option takes precedence.
func (h *Hive) collectOptions() {
	h.schema = config.NewSchema()
	declared := map[string]decl.Location{} // by flag
	for _, c := range h.graph.Configs() {
		if c.Ignored {
			continue
		}
		known := len(h.schema.Options())
		for _, err := range h.schema.Add(c.Module, c.Defaults, c.Flags) {
			h.reportOption(c, err, declared)
		}
		for _, o := range h.schema.Options()[known:] {
			declared[o.Name] = c.Where
		}
	}
	for _, c := range h.graph.Configs() {
		if c.Ignored {
			if err := h.schema.Ignore(c.Module, c.Flags); err != nil {
				h.reportOption(c, err, declared)
			}
		}
	}
}

func (h *Hive) reportOption(c resolve.ConfigDecl, err error, declared map[string]decl.Location) {
	if dup := new(config.DuplicateError); errors.As(err, &dup) {
		h.graph.Report("duplicate flag", "flag --"+dup.Flag+" is declared twice",
			"give the flag one owner, and let the other ask for the owner's config struct",
			resolve.Row{Label: "first", Text: inModule(declared[dup.Flag], dup.First)},
			resolve.Row{Label: "again", Text: inModule(c.Where, c.Module)})
		return
	}
	what, fix := err.Error(), ""
	if e := new(config.DeclarationError); errors.As(err, &e) {
		what, fix = e.Problem, e.Fix
	}
	h.graph.Report("unusable config", what, fix, resolve.Row{Label: "declared", Text: inModule(c.Where, c.Module)})
}

func inModule(where decl.Location, module string) string {
	if module == "" {
		return where.String()
	}
	return fmt.Sprintf("%s (module %s)", where, module)
}
