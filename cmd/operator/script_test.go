// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

// TestScripts runs testdata/script: commands that need no cluster, without a sleep.
// `operator` is the test binary; a line that begins with ! has to fail, with exit code 1.
func TestScripts(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	testscript.Run(t, testscript.Params{
		Dir: "testdata/script",
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"operator": func(ts *testscript.TestScript, neg bool, args []string) {
				err := ts.Exec(self, args...)
				if exit := new(exec.ExitError); err != nil && (!errors.As(err, &exit) || exit.ExitCode() != 1) {
					ts.Fatalf("operator %v: %v", args, err)
				}
				if (err != nil) != neg {
					ts.Fatalf("operator %v: %v", args, err)
				}
			},
		},
		Setup: func(env *testscript.Env) error {
			env.Setenv(asOperator, "1")
			env.Setenv("GORACE", "atexit_sleep_ms=0")
			env.Setenv("HOME", env.WorkDir)
			if env.Getenv("PATH") == "" {
				return fmt.Errorf("no PATH")
			}
			return nil
		},
	})
}
