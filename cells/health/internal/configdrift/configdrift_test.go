// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package configdrift

import (
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"github.com/skep-operator/skep/runtime/health"
	"github.com/skep-operator/skep/runtime/logging/logtest"
	"github.com/skep-operator/skep/runtime/waittest"
)

func TestMain(m *testing.M) { waittest.Main(m) }

func writeFiles(t *testing.T, files map[string][]byte) {
	t.Helper()
	for path, content := range files {
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// MET-3: a change of the configuration is reported once, and so is its end.
func TestDrift(t *testing.T) {
	dir := t.TempDir()
	file := func(key string) string { return filepath.Join(dir, key) }
	if err := os.Mkdir(file("..data"), 0o700); err != nil {
		t.Fatal(err)
	}
	writeFiles(t, map[string][]byte{file("debug"): []byte("false\n"), file("ipam"): []byte("cluster-pool")})
	tree, log := health.NewTree(), &logtest.Buffer{}
	d := &detector{paths: []string{dir}, log: slog.New(slog.NewTextHandler(log, nil)), health: tree.Reporter("health")}
	for _, step := range []struct {
		change func()
		report string // "" for fine
		lines  int
	}{
		{func() {}, "", 0},
		{func() { writeFiles(t, map[string][]byte{file("debug"): []byte("false")}) }, "", 0}, // white space is nothing
		{func() { writeFiles(t, map[string][]byte{file("debug"): []byte("true")}) }, "debug", 1},
		{func() {}, "debug", 1},
		{func() { writeFiles(t, map[string][]byte{file("new"): nil}); os.Remove(file("ipam")) }, "debug, ipam, new", 2},
		{func() {
			os.Remove(file("new"))
			writeFiles(t, map[string][]byte{file("debug"): []byte("false"), file("ipam"): []byte("cluster-pool")})
		}, "", 3},
	} {
		step.change()
		if err := d.compare(t.Context()); err != nil {
			t.Fatal(err)
		}
		want := health.Status{}
		if step.report != "" {
			want = health.Status{Level: health.Degraded, Message: "changed since the start and not in effect: " + step.report}
		}
		for _, s := range tree.Degraded() {
			if got := (health.Status{Level: s.Level, Message: s.Message}); !reflect.DeepEqual(got, want) {
				t.Errorf("reported is %+v, want %+v", got, want)
			}
			want = health.Status{}
		}
		if want.Level != "" {
			t.Errorf("%q is not reported", want.Message)
		}
		if n := len(log.Lines()); n != step.lines {
			t.Errorf("%d lines are logged, want %d:\n%s", n, step.lines, log)
		}
	}
}
