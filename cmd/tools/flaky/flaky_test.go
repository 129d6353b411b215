// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package main

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// events are lines of go test -json, from lines of an action, a test and an
// output. Without a test they are the package's.
func events(lines ...string) string {
	var b strings.Builder
	for _, line := range lines {
		part := append(strings.SplitN(line, " ", 3), "", "")
		b.WriteString(`{"Action":"` + part[0] + `","Package":"p","Test":"` + part[1] + `","Output":"` + part[2] + `"}` + "\n")
	}
	return b.String()
}

const endsInOrder = `output  FAIL\n`

func TestOutcomes(t *testing.T) {
	good := []string{"start", "run T", "pass T", "pass"}
	bad := []string{"start", "run T", `output T no\n`, "fail T", endsInOrder, "fail"}
	for _, c := range []struct {
		name       string
		lines      []string
		flakes     []flake
		unforgiven string
	}{
		{"nothing", nil, nil, ""},
		{"good", good, nil, ""},
		{"bad, then good", slices.Concat(bad, good), []flake{{"p", "T", 1, 2, "no\n"}}, ""},
		{"bad twice, then good", slices.Concat(bad, bad, good), []flake{{"p", "T", 2, 3, "no\n"}}, ""},
		{"bad for good", slices.Concat(bad, bad, bad), nil, "p.T failed and has not passed since"},
		{"good, then bad", slices.Concat(good, bad), nil, "p.T failed and has not passed since"},
		{"never ran again", slices.Concat(bad, []string{"start", "pass"}), nil, "p.T failed and has not passed since"},
		{"skipped, then", slices.Concat(bad, []string{"start", "run T", "skip T", "pass"}), nil, "p.T failed and has not passed since"},
		{"a subtest, counted once", slices.Concat(
			[]string{"start", "run T", `output T up\n`, "run T/a", `output T/a no\n`, "fail T/a", "run T/b", "pass T/b", "fail T", endsInOrder, "fail"},
			[]string{"start", "run T", "run T/a", "pass T/a", "pass T", "pass"}), []flake{{"p", "T/a", 1, 2, "up\nno\n"}}, ""},
		{"goroutines left", []string{"start", "run T", "pass T", `output  PASS\n`, "fail", "start", "pass"}, nil, "p, run 1: the package failed, though none of its tests did"},
		{"goroutines left by the second", slices.Concat(bad, []string{"start", "run T", "pass T", "fail"}), []flake{{"p", "T", 1, 2, "no\n"}}, "p, run 2: the package failed"},
		{"killed", slices.Concat([]string{"start", "run T", "fail"}, good), nil, "p, run 1: the tests did not come to their end"},
		{"killed after a failure", slices.Concat([]string{"start", "run T", "fail T", "run U", "fail"}, good), []flake{{"p", "T", 1, 2, ""}}, "p, run 1: the tests did not come to their end"},
		{"a race that another process tells of", slices.Concat(
			[]string{"start", "run T", `output T     WARNING: DATA RACE\n`, "fail T", endsInOrder, "fail"}, good), []flake{{"p", "T", 1, 2, "    WARNING: DATA RACE\n"}}, "p, run 1: there was a data race"},
	} {
		t.Run(c.name, func(t *testing.T) {
			h, err := readHistory("x.json", strings.NewReader(events(c.lines...)))
			if err != nil {
				t.Fatal(err)
			}
			if got := h.flakes(); !slices.Equal(got, c.flakes) {
				t.Errorf("the flakes are %+v, not %+v", got, c.flakes)
			}
			got := strings.Join(h.unforgiven(), "; ")
			if !strings.HasPrefix(got, c.unforgiven) || (got == "") != (c.unforgiven == "") {
				t.Errorf("not forgiven: %q, want %q", got, c.unforgiven)
			}
		})
	}
}

func TestMalformed(t *testing.T) {
	file := filepath.Join(t.TempDir(), "race.json")
	for _, text := range []string{"\n{}\nok\n", "{}\n{}\n" + `{"Action":"ou`} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		for _, err := range []error{check([]string{file}), report(&bytes.Buffer{}, filepath.Dir(file), 3)} {
			if err == nil || !strings.Contains(err.Error(), "race.json:3: ") {
				t.Errorf("%q: %v", text, err)
			}
		}
	}
}

// TestReport counts over all files, and keeps the output of one test twice if
// it is flaky in two of them.
func TestReport(t *testing.T) {
	dir := t.TempDir()
	text := events("start", "run T/a", `output T/a no\n`, "fail T/a", endsInOrder, "fail", "start", "run T/a", "pass T/a", "pass")
	for _, name := range []string{"cluster.json", "race.json"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var out bytes.Buffer
	if err := report(&out, dir, 2); err != nil {
		t.Error(err)
	}
	want := "FLAKY 1: p.T/a (1 of 2 runs failed; first output in " + filepath.Join(dir, "p.T_a.log") + ")\n" +
		"FLAKY 2: p.T/a (1 of 2 runs failed; first output in " + filepath.Join(dir, "p.T_a-2.log") + ")\n"
	if out.String() != want {
		t.Errorf("got\n%swant\n%s", &out, want)
	}
	if kept, err := os.ReadFile(filepath.Join(dir, "p.T_a-2.log")); err != nil || string(kept) != "no\n" {
		t.Errorf("%q, %v", kept, err)
	}
	if err := report(&out, dir, 1); err == nil || !strings.Contains(err.Error(), "2 tests passed only when they ran again") {
		t.Errorf("two where one may be: %v", err)
	}
}
