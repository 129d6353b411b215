// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package status

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/skep-operator/skep/resources/explain"
	"github.com/skep-operator/skep/resources/leading"
	"github.com/skep-operator/skep/runtime/health"
	"github.com/skep-operator/skep/runtime/printable"
)

// write prints the screen. Duties that are off are only counted, unless all are to be shown.
func (s Screen) write(w io.Writer, now time.Time, all bool) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	row := func(cells ...string) {
		shown := make([]string, len(cells))
		for i, cell := range cells {
			shown[i] = printable.Line(cell)
		}
		fmt.Fprintln(t, strings.Join(shown, "\t"))
	}
	row("Operator", fmt.Sprintf("%s %s, up %s, %d MB heap", s.Name, s.Version, age(s.Started, now), s.HeapBytes>>20))
	if s.APIServer != "" {
		row("API server", s.APIServer)
	}
	if s.Election != nil {
		row("Leader", describeLeader(s.Election, now))
		if line := (explain.Election{Lease: s.Election.Lease, Identity: s.Election.Identity, Holder: s.Election.Holder, Leading: s.Election.Leading}).LeaderCommand(); line != "" {
			row("Ask it", line)
		}
	}
	table := func(title string, columns []string, rows [][]string) {
		if len(rows) == 0 {
			return
		}
		_ = t.Flush() // columns of one table do not align with those of another
		fmt.Fprintln(w)
		if title != "" {
			fmt.Fprintln(w, title+":")
		}
		row(columns...)
		for _, r := range rows {
			row(r...)
		}
	}
	shown := s.Duties
	if !all {
		shown = slices.DeleteFunc(slices.Clone(shown), func(d duty) bool { return d.State == off })
	}
	table("", []string{"DUTY", "STATE", "ABOUT"}, dutyRows(shown))
	if hidden := len(s.Duties) - len(shown); hidden > 0 {
		_ = t.Flush()
		fmt.Fprintf(w, "%d more are off: status -v says why\n", hidden)
	}
	for _, added := range s.Sections {
		table(added.Title, added.Columns, added.Rows)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	if len(s.Degraded) == 0 {
		_, err := fmt.Fprintln(w, "\nNothing is degraded.")
		return err
	}
	fmt.Fprintln(w, "\nDegraded:")
	if err := health.WriteText(w, s.Degraded, now); err != nil {
		return err
	}
	_, err := fmt.Fprintln(w, "\n"+explain.SeeTroubleshooting)
	return err
}

func dutyRows(duties []duty) [][]string {
	var rows [][]string
	for _, d := range duties {
		about := d.Title
		if d.Reason != "" {
			about = d.Reason
		}
		rows = append(rows, []string{d.ID, d.State, about})
	}
	return rows
}

func describeLeader(e *leading.ElectionStatus, now time.Time) string {
	since := ""
	if !e.Since.IsZero() {
		since = " for " + age(e.Since, now)
	}
	switch {
	case e.Leading:
		return fmt.Sprintf("this replica (%s)%s, by lease %s", e.Identity, since, e.Lease)
	case e.Holder == "":
		return "no leader is known; lease " + e.Lease
	}
	return fmt.Sprintf("%s%s; this replica (%s) stands by, lease %s", e.Holder, since, e.Identity, e.Lease)
}

func age(since, now time.Time) string { return now.Sub(since).Round(time.Second).String() }
