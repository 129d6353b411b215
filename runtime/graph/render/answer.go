// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package render

import (
	"bufio"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/skep-operator/skep/runtime/graph"
	"github.com/skep-operator/skep/runtime/graph/query"
	"github.com/skep-operator/skep/runtime/printable"
)

// WriteAnswer writes the answer to a query as text.
func WriteAnswer(w io.Writer, a *query.Answer) error {
	p := &page{Writer: bufio.NewWriter(w)}
	for i := range a.Cells {
		p.separate()
		p.cell(&a.Cells[i])
	}
	for i := range a.NotBuilt {
		p.separate()
		p.notBuilt(&a.NotBuilt[i])
	}
	for i := range a.Types {
		p.separate()
		p.typ(&a.Types[i])
	}
	for i := range a.Flags {
		p.separate()
		p.flag(&a.Flags[i])
	}
	return p.Flush()
}

// page is text with parts, sections and lines.
type page struct {
	*bufio.Writer
	started bool
}

// separate separates what follows from what came before.
func (p *page) separate() {
	if p.started {
		fmt.Fprintln(p)
	}
	p.started = true
}

// line writes a text as one line: values of options are texts of others.
func (p *page) line(depth int, format string, args ...any) {
	fmt.Fprintln(p, strings.Repeat("  ", depth)+printable.Line(fmt.Sprintf(format, args...)))
}

// field is a line with a label; one without text is left out.
func (p *page) field(label, format string, args ...any) {
	if text := fmt.Sprintf(format, args...); text != "" {
		p.line(1, "%-10s %s", label, text)
	}
}

func (p *page) cell(f *query.CellFacts) {
	p.line(0, "cell %s%s", f.ID, prefixed(": ", f.Title))
	p.field("lives in", "%s%s", graph.TermLabel(f.Term), prefixed(", within ", f.Parent))
	p.field("state", "%s%s", onOff(f.Enabled), prefixed(": ", f.Reason))
	for _, c := range f.Conditions {
		p.field("condition", "%s", condition(c, f.ID))
	}
	p.field("health", "%s", f.Health)
	p.field("replaces", "%s", f.Replaces)
	p.field("nested", "%s", strings.Join(f.Nested, ", "))
	p.field("declared", "%s", f.Declared)
	p.provides(f)
	p.needs(f)
	p.without(f)
	p.starts(f)
	if len(f.Options) > 0 {
		p.line(1, "flags")
		for _, o := range f.Options {
			p.line(2, "%s", optionText(o))
		}
	}
}

// condition is a condition with its outcome and, where it is not the cell's
// own, whose it is.
func condition(c query.CellCondition, cell string) string {
	text := "holds: "
	if !c.Holds {
		text = "fails: "
	}
	text += c.Name
	if len(c.Flags) > 0 {
		text += " (--" + strings.Join(c.Flags, ", --") + ")"
	}
	if c.Cell != cell {
		text += ", asked by " + c.Cell
	}
	return text
}

func (p *page) provides(f *query.CellFacts) {
	if len(f.Provides) == 0 {
		return
	}
	p.line(1, "provides")
	for _, v := range f.Provides {
		p.line(2, "%s", provided(v))
		for _, u := range byCell(v.Users) {
			if u.Cell != f.ID || u.Through != "" {
				p.line(3, "needed by %s", userText(u))
			}
		}
	}
}

// provided is a value, how it is made, and which modules use it.
func provided(v query.Provided) string {
	text := v.Type
	switch v.Kind {
	case graph.KindConfig:
		text += ", filled from flags"
	case graph.KindDecorator:
		text += ", changed by " + v.By
	case graph.KindConstructor:
		text += " from " + v.By
	}
	switch v.Scope {
	case "private":
		text += ", private"
	case graph.VisibilityPerModule:
		text += ", one per cell"
	case "lasting":
		text += ", lasting"
	}
	if v.Unused {
		text += ", unused"
	}
	return text
}

// byCell makes one of those users that differ only in who of a cell it is.
func byCell(users []query.User) []query.User {
	var list []query.User
	for _, u := range users {
		i := slices.IndexFunc(list, func(known query.User) bool {
			return known.Cell == u.Cell && known.Through == u.Through && known.Optional == u.Optional && slices.Equal(known.From, u.From)
		})
		if i < 0 {
			list = append(list, u)
		} else {
			list[i].By += ", " + u.By
		}
	}
	return list
}

func userText(u query.User) string {
	text := fmt.Sprintf("%s (%s)", u.Cell, u.By)
	if u.Through != "" {
		text += ", as changed by " + u.Through
	}
	if u.Optional {
		text += ", which goes on without it"
	}
	if u.Off {
		text += ", which is off"
	}
	return text
}

func (p *page) needs(f *query.CellFacts) {
	if len(f.Needs) == 0 {
		return
	}
	p.line(1, "needs")
	for _, n := range f.Needs {
		text := n.Type
		switch from := strings.Join(n.From, ", "); from {
		case f.ID:
			text += " of its own"
		case "":
			text += " without provider"
		default:
			text += " from " + from
		}
		if n.Optional {
			text += ", optional"
		}
		if len(n.Off) > 0 {
			text += "; " + strings.Join(n.Off, ", ") + ", which is off, would provide it"
		}
		p.line(2, "%s", text)
	}
}

func (p *page) without(f *query.CellFacts) {
	if len(f.Breaks)+len(f.Lacks) == 0 {
		return
	}
	p.line(1, "without it")
	for _, d := range f.Breaks {
		p.line(2, "%s breaks: it needs %s%s", d.Cell, d.Type, ofOther(d, f.ID))
	}
	for _, d := range f.Lacks {
		p.line(2, "%s goes on without %s", d.Cell, d.Type)
	}
}

func ofOther(d query.Dependent, cell string) string {
	if d.Of == cell {
		return ""
	}
	return " of " + d.Of
}

func (p *page) starts(f *query.CellFacts) {
	if len(f.Starts) == 0 {
		return
	}
	p.line(1, "starts")
	for _, s := range f.Starts {
		took := ""
		if s.Nanos > 0 {
			took = ", took " + duration(s.Nanos)
		}
		p.line(2, "%d of %d in the %s: %s%s", s.Place, s.Of, graph.TermLabel(s.Term), s.Step, took)
		for _, reason := range reasonsOf(s.After) {
			var steps []string
			for _, a := range s.After {
				if a.Reason == reason {
					steps = append(steps, a.Step)
				}
			}
			p.line(3, "after %s%s", strings.Join(steps, ", "), prefixed(": ", reason))
		}
	}
}

// reasonsOf are the reasons of earlier steps, each once; "" is what data says.
func reasonsOf(after []query.Earlier) []string {
	var list []string
	for _, a := range after {
		list = appendNew(list, a.Reason)
	}
	return list
}

func (p *page) typ(f *query.TypeFacts) {
	p.line(0, "type %s", f.Name)
	if f.Full != f.Name {
		p.field("in full", "%s", f.Full)
	}
	for _, v := range f.Providers {
		p.line(1, "%s", providerText("provided", v))
	}
	if len(f.Providers) == 0 {
		p.line(1, "not provided")
	}
	for _, v := range f.Decorators {
		p.line(1, "%s", providerText("changed", v))
	}
	for _, u := range byCell(f.Users) {
		from := ""
		if len(f.Providers)+len(f.Decorators) > 1 && len(u.From) > 0 {
			from = ", from " + strings.Join(u.From, ", ")
		}
		p.line(1, "needed by %s%s", userText(u), from)
	}
	if len(f.Users) == 0 {
		p.line(1, "not needed")
	}
}

func providerText(verb string, v query.Provided) string {
	if v.Kind == graph.KindBuiltin {
		return verb + " by " + v.Cell + " itself"
	}
	text := fmt.Sprintf("%s by %s (%s)", verb, v.Cell, v.By)
	switch {
	case v.Kind == graph.KindConfig:
		text = fmt.Sprintf("%s by %s, filled from its flags", verb, v.Cell)
	case v.Kind == graph.KindDecorator:
		text += ", for itself and cells nested in it"
	case v.Scope == "private":
		text += ", private to it"
	case v.Scope == graph.VisibilityPerModule:
		text += ", one per cell"
	case v.Scope == "lasting":
		text += ", lasting from term to term"
	}
	if v.Off != "" && v.Kind != graph.KindConfig {
		text += ", which is off: " + v.Off
	}
	if v.Declared != "" {
		text += ", " + v.Declared
	}
	return text
}

func (p *page) flag(f *query.FlagFacts) {
	p.line(0, "flag --%s: %s", f.Name, f.Usage)
	p.field("cell", "%s", f.Cell)
	p.field("type", "%s", f.Type)
	p.field("default", "%s", emptyAs(f.Default, `""`))
	if f.Source != "" {
		p.field("value", "%s, from %s", emptyAs(f.Value, `""`), f.Source)
	}
	if f.Ignored {
		p.line(1, "is accepted and does nothing: its cell was replaced")
	}
	for _, c := range f.Conditions {
		p.field("condition", "%s, asked by %s", condition(c, c.Cell), c.Cell)
	}
	if len(f.Switches) > 0 {
		p.line(1, "switches")
		for _, s := range f.Switches {
			p.line(2, "%s, which is %s%s", s.Cell, onOff(s.Enabled), prefixed(", with ", s.Within))
		}
	}
}

// optionText is a flag in one line.
func optionText(o graph.Option) string {
	text := fmt.Sprintf("--%s %s", o.Name, o.Type)
	if o.Ignored {
		return text + ": accepted and ignored"
	}
	text += prefixed(": ", o.Usage)
	if o.Source != "" {
		return text + fmt.Sprintf(" (%s, from %s)", emptyAs(o.Value, `""`), o.Source)
	}
	return text + prefixed(" (default ", o.Default) + closing(o.Default)
}

func closing(text string) string {
	if text == "" {
		return ""
	}
	return ")"
}

func onOff(on bool) string {
	if on {
		return "on"
	}
	return "off"
}

// prefixed is a text with a prefix, or nothing.
func prefixed(prefix, text string) string {
	if text == "" {
		return ""
	}
	return prefix + text
}

func emptyAs(text, instead string) string {
	if text == "" {
		return instead
	}
	return text
}

// duration is short enough for a column.
func duration(nanos int64) string {
	d := time.Duration(nanos)
	switch {
	case d >= 10*time.Second:
		d = d.Round(100 * time.Millisecond)
	case d >= 10*time.Millisecond:
		d = d.Round(time.Millisecond)
	case d >= 10*time.Microsecond:
		d = d.Round(time.Microsecond)
	}
	return d.String()
}
