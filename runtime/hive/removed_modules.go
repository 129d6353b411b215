// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package hive

import (
	"fmt"
	"strings"

	"github.com/skep-operator/skep/runtime/config"
	"github.com/skep-operator/skep/runtime/internal/resolve"
)

// removedFlags are the flags of modules that an embedder removed, with the id of the module.
func (h *Hive) removedFlags() map[string]string {
	of := map[string]string{}
	for _, r := range h.graph.Removed() {
		for _, declare := range r.Flags {
			names, _ := config.FlagNames(declare) // flags that cannot be declared are of no module of the list
			for _, name := range names {
				of[name] = r.ID
			}
		}
	}
	return of
}

// withoutEffect is a warning that names the options that were set for modules that are not in the list any more,
// or nothing. It follows from the values, and is known after Select.
func (h *Hive) withoutEffect() string {
	var options []string
	note := func(option, why string) { options = append(options, fmt.Sprintf("%s (%s)", option, why)) }
	for _, e := range h.values.Entries() {
		if m := h.graph.Module(e.Module); e.Option.Ignored && m != nil && m.Replaces != "" && h.values.Given(e.Name) {
			note(e.Name, m.ID+" replaces "+m.Replaces)
		}
	}
	removed := h.removedFlags()
	for _, e := range h.values.Unknown() {
		if id := removed[e.Name]; id != "" {
			note(e.Name, id+" is removed")
		}
	}
	told := map[string]bool{}
	for _, r := range h.graph.Removed() {
		for _, flag := range h.switchedOn(r) {
			if !told[flag] {
				told[flag] = true
				note(flag, r.ID+" is removed")
			}
		}
	}
	if len(options) == 0 {
		return ""
	}
	return "options that are set for modules that are not in this operator: " + strings.Join(options, ", ")
}

// switchedOn are the options, among those that were set, that switch a removed module on. A condition over structs
// that went with the module cannot be asked.
func (h *Hive) switchedOn(r resolve.Removed) []string {
	var flags []string
	for _, c := range r.Conditions {
		if holds, err := resolve.Evaluate(c, h.ruleInput); err != nil || !holds {
			continue
		}
		for _, flag := range c.Flags {
			if h.schema.Option(flag) != nil && h.values.Given(flag) {
				flags = append(flags, flag)
			}
		}
	}
	return flags
}

// checkConditions finds conditions that name flags that no module has: help, why and the documents would name them.
// A removed module may have had them.
func (h *Hive) checkConditions() {
	removed := h.removedFlags()
	for _, m := range h.graph.Modules {
		for _, c := range m.Conditions {
			if !c.Evaluable(h.ruleInput) {
				continue // which is a mistake of its own
			}
			for _, flag := range c.Flags {
				if h.schema.Option(flag) == nil && removed[flag] == "" {
					h.graph.Report("unknown flag", fmt.Sprintf("the condition %q names --%s, which no cell declares", c.Name, flag),
						h.hint(flag, "name the flags that change it"),
						resolve.Row{Label: "declared", Text: inModule(c.Where, m.ID)})
				}
			}
		}
	}
}
