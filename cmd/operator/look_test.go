// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// asLooks in the environment makes the test binary take the looks in the file that it names, one after the other,
// and write there what each gave: to start a process with the race detector takes longer than most looks.
const asLooks = "SKEP_TEST_AS_LOOKS"

// look is a run of the operator that ends by itself: a command that tells something, or a start that fails.
type look struct {
	Args []string
	Env  []string // KEY=value pairs besides
	// What it gave.
	Stdout, Stderr string
	Code           int
}

// take takes looks in a process of their own, and in their order.
func take(t *testing.T, looks ...look) []look {
	t.Helper()
	path := filepath.Join(t.TempDir(), "looks")
	data, err := json.Marshal(looks)
	if err == nil {
		err = os.WriteFile(path, data, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = operatorEnv(asLooks + "=" + path)
	if text, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("the process that takes the looks: %v\n%s", err, text)
	}
	if data, err = os.ReadFile(path); err == nil {
		err = json.Unmarshal(data, &looks)
	}
	if err != nil {
		t.Fatal(err)
	}
	return looks
}

// output is what a command prints that succeeds.
func output(t *testing.T, args ...string) string {
	t.Helper()
	l := take(t, look{Args: args})[0]
	l.succeeds(t)
	return l.Stdout
}

func (l look) succeeds(t *testing.T) {
	t.Helper()
	if l.Code != 0 {
		t.Fatalf("%q ended with %d: %s", l.Args, l.Code, l.Stderr)
	}
}

// lookInTurn takes the looks in a file, and writes what they gave into it. It returns the exit code.
func lookInTurn(path string) int {
	var looks []look
	data, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(data, &looks)
	}
	for i := range looks {
		if err == nil {
			err = looks[i].take(path)
		}
	}
	if data, marshalErr := json.Marshal(looks); err == nil && marshalErr == nil {
		err = os.WriteFile(path, data, 0o600)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// take is the operator's main with the look's arguments, environment and outputs in place of the process'.
func (l *look) take(path string) error {
	for _, pair := range l.Env {
		name, value, _ := strings.Cut(pair, "=")
		if before, ok := os.LookupEnv(name); ok {
			defer os.Setenv(name, before)
		} else {
			defer os.Unsetenv(name)
		}
		os.Setenv(name, value)
	}
	stdout, err := os.Create(path + ".stdout")
	if err != nil {
		return err
	}
	defer stdout.Close()
	stderr, err := os.Create(path + ".stderr")
	if err != nil {
		return err
	}
	defer stderr.Close()
	args, out, errs := os.Args, os.Stdout, os.Stderr
	os.Args, os.Stdout, os.Stderr = append([]string{args[0]}, l.Args...), stdout, stderr
	l.Code = operatorMain()
	os.Args, os.Stdout, os.Stderr = args, out, errs
	outText, err := os.ReadFile(stdout.Name())
	if err != nil {
		return err
	}
	errText, err := os.ReadFile(stderr.Name())
	l.Stdout, l.Stderr = string(outText), string(errText)
	return err
}
