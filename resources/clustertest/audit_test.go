// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package clustertest

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// What is half written when an Audit begins is of the requests that it reads, and what is whole is not.
func TestAuditBeginsAtALine(t *testing.T) {
	long := strings.Repeat("x", 200<<10)
	for name, test := range map[string]struct {
		before, after string
		want          []string
	}{
		"an empty log":               {"", `{"auditID":"1"}` + "\n", []string{"1"}},
		"after a whole line":         {`{"auditID":"1"}` + "\n", `{"auditID":"2"}` + "\n", []string{"2"}},
		"within a line":              {`{"auditID":"1"}` + "\n" + `{"aud`, `itID":"2"}` + "\n", []string{"2"}},
		"within the first line":      {`{"aud`, `itID":"1"}` + "\n", []string{"1"}},
		"within a line of 400 kB":    {`{"auditID":"1"}` + "\n" + `{"verb":"` + long, long + `","auditID":"2"}` + "\n", []string{"2"}},
		"after a line of 200 kB":     {`{"auditID":"1","verb":"` + long + `"}` + "\n", `{"auditID":"2"}` + "\n", []string{"2"}},
		"and the last is being made": {`{"auditID":"1"}` + "\n", `{"auditID":"2"}` + "\n" + `{"audit`, []string{"2"}},
	} {
		t.Run(name, func(t *testing.T) {
			a := &Audit{file: filepath.Join(t.TempDir(), "audit.log")}
			write(t, a.file, test.before)
			if err := a.skip(); err != nil {
				t.Fatal(err)
			}
			write(t, a.file, test.after)
			var got []string
			for event := range a.Events(t) {
				got = append(got, event.AuditID)
			}
			if !slices.Equal(got, test.want) {
				t.Errorf("events %q, want %q", got, test.want)
			}
		})
	}
}

// write appends to a file.
func write(t *testing.T, file, text string) {
	t.Helper()
	f, err := os.OpenFile(file, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteString(text); err != nil {
		t.Fatal(err)
	}
}
