// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package command_test

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/skep-operator/skep/runtime/cell"
	"github.com/skep-operator/skep/runtime/command"
)

// drawWith runs graph -o svg with a drawing program that is this shell script.
func drawWith(t *testing.T, ctx context.Context, script string) (stdout, stderr string, err error) {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "graphdraw"), []byte("#!/bin/sh\n"+script+"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+string(filepath.ListSeparator)+os.Getenv("PATH"))
	root := command.New("operator", cell.Set())
	var out, log bytes.Buffer
	root.SetOut(&out)
	root.SetErr(&log)
	root.SetArgs([]string{"graph", "-o", "svg"})
	err = root.ExecuteContext(ctx)
	return out.String(), log.String(), err
}

// What the drawing program says of itself is shown as it is.
func TestDraw(t *testing.T) {
	for _, test := range []struct{ name, script, stdout, stderr, err string }{
		{"drawn", `echo "<svg>"; echo a remark >&2`, "<svg>\n", "a remark\n", ""},
		{"refused", `echo "graphdraw: reading a graph: EOF" >&2; exit 1`, "", "graphdraw: reading a graph: EOF\n", "exit status 1"},
	} {
		t.Run(test.name, func(t *testing.T) {
			stdout, stderr, err := drawWith(t, t.Context(), test.script)
			if stdout != test.stdout || stderr != test.stderr || (err == nil) != (test.err == "") || err != nil && err.Error() != test.err {
				t.Errorf("%q, %q, %v", stdout, stderr, err)
			}
		})
	}
}

// A crash of the drawing program comes with a remedy, and without its trace.
func TestDrawCrash(t *testing.T) {
	const trace = `echo; echo "goroutine 1 [running]:"; echo "main.main()"`
	for _, test := range []struct{ name, script, cause string }{
		{"panic", `{ echo "panic: no such box"; ` + trace + `; } >&2; exit 2`, "graphdraw crashed (exit status 2: panic: no such box); "},
		{"fault without a trace", `{ echo "unexpected fault address 0x2370"; echo "stack trace unavailable"; } >&2; exit 4`,
			"graphdraw crashed (exit status 4: unexpected fault address 0x2370); "},
		{"panic of the engine", `{ echo "graphdraw: index out of range (recovered by wazero)"; echo "Go runtime stack trace:"; ` + trace + `; } >&2; exit 1`,
			"graphdraw crashed (exit status 1: graphdraw: index out of range (recovered by wazero)); "},
		{"signal", `ulimit -c 0; kill -s SEGV $$`, "graphdraw crashed (signal: segmentation fault"},
	} {
		t.Run(test.name, func(t *testing.T) {
			stdout, stderr, err := drawWith(t, t.Context(), test.script)
			if err == nil || stdout != "" || stderr != "" {
				t.Fatalf("%q, %q, %v", stdout, stderr, err)
			}
			for _, want := range []string{test.cause, "text, order, dot, mermaid and json need no drawing program", "another version of graphdraw"} {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%q does not say %q", err, want)
				}
			}
			if strings.ContainsAny(err.Error(), "\n") || strings.Contains(err.Error(), "goroutine") {
				t.Errorf("the user gets the trace: %v", err)
			}
		})
	}
}

// A drawing that the user stops did not crash.
func TestDrawStopped(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	begun := filepath.Join(t.TempDir(), "begun")
	go func() {
		defer stop()
		for ; ctx.Err() == nil; time.Sleep(time.Millisecond) { // between looks
			if _, err := os.Stat(begun); err == nil {
				return
			}
		}
	}()
	if _, _, err := drawWith(t, ctx, "touch '"+begun+"'; exec sleep 60"); err == nil || strings.Contains(err.Error(), "crashed") {
		t.Errorf("%v", err)
	}
}
