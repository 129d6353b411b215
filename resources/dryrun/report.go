// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package dryrun

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/skep-operator/skep/resources/explain"
	"github.com/skep-operator/skep/runtime/health"
	"github.com/skep-operator/skep/runtime/printable"
)

// Report is what a plan has found out. It is an error so that it can be the cause
// of a shutdown; see command.Outcome. The JSON of it is documented in
// docs/plan.md.
type Report struct {
	// Stable says that nothing more is to come.
	Stable bool `json:"stable"`
	// Simulated is how far ahead time was simulated.
	Simulated Duration `json:"simulated"`
	// Writes are ordered by rule, then by what is written, then by when.
	Writes []ReportedWrite `json:"writes"`
	// Busy is what was under way when the time was up.
	Busy []string `json:"busy,omitempty"`
	// Waiting is what could not be planned to its end: it failed, and waits for a
	// retry or for the user.
	Waiting []string `json:"waiting,omitempty"`
	// Incomplete says that something of it failed, such as a server outside that does not answer: there may be more to do.
	Incomplete bool `json:"incomplete,omitempty"`

	limit time.Duration
}

// ReportedWrite is a write in a report.
type ReportedWrite struct {
	Rule        string          `json:"rule"` // module and rule, "" for a write without a cause
	Module      string          `json:"module"`
	Store       string          `json:"store,omitempty"` // "etcd", or nothing for the API server
	Verb        string          `json:"verb"`
	Resource    string          `json:"resource"`
	Namespace   string          `json:"namespace,omitempty"`
	Name        string          `json:"name"`
	Subresource string          `json:"subresource,omitempty"`
	Changes     []Change        `json:"changes,omitempty"`
	Triggers    []string        `json:"triggers,omitempty"`
	DueIn       Duration        `json:"dueIn,omitzero"` // 0 for at once
	Every       Duration        `json:"every,omitzero"` // it recurs for ever
	Request     json.RawMessage `json:"request,omitempty"`
}

// Duration is written as text, like 5m0s.
type Duration time.Duration

// MarshalText implements encoding.TextMarshaler.
func (d Duration) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (d *Duration) UnmarshalText(text []byte) error {
	parsed, err := time.ParseDuration(string(text))
	*d = Duration(parsed)
	return err
}

func (d Duration) String() string { return time.Duration(d).String() }

// report is the end of a plan.
func (p *Plan) report(load Load, stable bool) *Report {
	p.mu.Lock()
	defer p.mu.Unlock()
	r := &Report{
		Stable: stable, Simulated: Duration(p.ahead - p.entered), Writes: []ReportedWrite{},
		Waiting: slices.Concat(load.Waiting, load.Failed, load.Retrying), Incomplete: len(load.Failed)+len(load.Retrying) > 0, limit: p.limit,
	}
	if !stable {
		r.Busy = load.Busy
		if len(r.Busy) == 0 {
			r.Busy = []string{"new writes were planned to the last"}
		}
	}
	if p.degraded != nil {
		r.Waiting = append(r.Waiting, failing(p.degraded())...)
	}
	slices.Sort(r.Waiting)
	r.Waiting = slices.Compact(r.Waiting)
	for _, w := range p.writes {
		r.Writes = append(r.Writes, w.reported(p.entered))
	}
	slices.SortStableFunc(r.Writes, func(a, b ReportedWrite) int {
		return cmp.Or(cmp.Compare(a.Rule, b.Rule), cmp.Compare(a.Module, b.Module), cmp.Compare(a.Resource, b.Resource),
			cmp.Compare(a.Namespace, b.Namespace), natural(a.Name, b.Name), cmp.Compare(a.DueIn, b.DueIn),
			cmp.Compare(a.Subresource, b.Subresource), cmp.Compare(a.Verb, b.Verb))
	})
	return r
}

// natural compares names with numbers as people count them.
func natural(a, b string) int {
	x, errA := strconv.ParseUint(a, 10, 64)
	y, errB := strconv.ParseUint(b, 10, 64)
	if errA == nil && errB == nil {
		return cmp.Or(cmp.Compare(x, y), cmp.Compare(a, b))
	}
	return cmp.Compare(a, b)
}

// failing are modules that are not there to be planned, and permissions that
// they lack. What else is degraded is told by its mechanism.
func failing(all []health.Status) []string {
	var told []string
	for _, s := range all {
		last := s.ID[strings.LastIndexByte(s.ID, '.')+1:]
		if last == "permissions" || strings.HasPrefix(s.Message, "failed ") {
			told = append(told, strings.TrimSuffix(s.ID+": "+s.Message+": "+s.Error, ": "))
		}
	}
	return told
}

// reported is a write as seen from the beginning of a term.
func (w *Write) reported(began time.Duration) ReportedWrite {
	r := ReportedWrite{
		Rule: w.rule(), Module: w.Module, Store: w.Store, Verb: w.Verb, Resource: w.Resource,
		Namespace: w.Namespace, Name: w.Name, Subresource: w.Subresource,
		Changes: w.Changes, Request: w.Request, DueIn: Duration(max(0, w.due-began)), Every: Duration(w.every),
	}
	if w.cause != nil {
		for _, t := range w.cause.Triggers {
			r.Triggers = append(r.Triggers, triggerText(t))
		}
		slices.Sort(r.Triggers)
		r.Triggers = slices.Compact(r.Triggers)
	}
	return r
}

// triggerText names an object. Versions that only the plan knows are left out.
func triggerText(t explain.Trigger) string {
	if IsPlanned(t.ResourceVersion) {
		t.ResourceVersion = ""
		return t.String() + " as planned"
	}
	return t.String()
}

// Error implements error.
func (r *Report) Error() string {
	switch {
	case !r.Stable:
		return fmt.Sprintf("the plan is not stable within %s", r.limit)
	case len(r.Writes) == 0 && r.Incomplete:
		return "no writes are planned, and not all could be planned to the end"
	case len(r.Writes) == 0:
		return "nothing to do"
	}
	return fmt.Sprintf("%d writes are planned", len(r.Writes))
}

// ExitCode is 0 for nothing to do, 2 for something to do, 3 for a plan that is
// not stable, 4 if nothing was found and something failed.
func (r *Report) ExitCode() int {
	switch {
	case !r.Stable:
		return 3
	case len(r.Writes) > 0:
		return 2
	case r.Incomplete:
		return 4
	}
	return 0
}

// WriteJSON writes the report as JSON.
func (r *Report) WriteJSON(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	return e.Encode(r)
}

// WriteText writes the report for a terminal: a line per write.
func (r *Report) WriteText(w io.Writer) error {
	var b strings.Builder
	rule := "\x00"
	for _, write := range r.Writes {
		if write.Rule != rule {
			rule = write.Rule
			fmt.Fprintf(&b, "%s:\n", cmp.Or(rule, write.Module+" (no cause)"))
		}
		fmt.Fprintf(&b, "  %s\n", write)
	}
	for _, list := range []struct {
		title string
		lines []string
	}{{"Not planned to the end", r.Waiting}, {"Still under way", r.Busy}} {
		if len(list.lines) > 0 {
			fmt.Fprintf(&b, "%s:\n", list.title)
		}
		for _, line := range list.lines {
			fmt.Fprintf(&b, "  %s\n", printable.Line(strings.ReplaceAll(line, "\n", " ")))
		}
	}
	fmt.Fprintf(&b, "%s\n", r.summary())
	_, err := io.WriteString(w, b.String())
	return err
}

func (r *Report) summary() string {
	var text string
	switch n := len(r.Writes); {
	case n == 0 && r.Incomplete:
		text = "Plan: no writes, NOT PLANNED TO THE END"
	case n == 0:
		text = "Plan: nothing to do"
	case n == 1:
		text = "Plan: 1 write"
	default:
		text = fmt.Sprintf("Plan: %d writes", n)
	}
	if r.Simulated > 0 {
		text += fmt.Sprintf(", looking %s ahead", r.Simulated)
	}
	if !r.Stable {
		text += fmt.Sprintf("; NOT STABLE within %s, there may be more: see --%s", r.limit, "plan-timeout")
	}
	return text + "."
}

// String is one line: what, what changes, why, when.
func (w ReportedWrite) String() string {
	name := w.Name
	if w.Namespace != "" {
		name = w.Namespace + "/" + name
	}
	text := w.Verb + " " + w.Resource + " " + name
	if w.Store != "" {
		text = w.Verb + " " + w.Store + " " + w.Resource + "/" + w.Name
	}
	if w.Subresource != "" {
		text += " (" + w.Subresource + ")"
	}
	if len(w.Changes) > 0 {
		text += ": " + brief(w.Changes)
	}
	if len(w.Triggers) > 0 {
		text += "; set off by " + strings.Join(w.Triggers, ", ")
	}
	if w.DueIn > 0 {
		text += "; due at +" + w.DueIn.String()
	}
	if w.Every > 0 {
		text += "; recurs every " + w.Every.String()
	}
	return printable.Line(text)
}
