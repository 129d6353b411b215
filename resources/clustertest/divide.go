// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package clustertest

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// Divide makes a package's tests run in several processes at once, each with a shared cluster
// of its own: one for the tests whose names match each expression, as -run has it, and one for
// all others. It is for a package that waits more than it computes:
//
//	func TestMain(m *testing.M) { os.Exit(clustertest.Wrap(clustertest.Divide(m, "^TestFaults")).Run()) }
//
// A run that selects tests, and one with -short, is not divided.
func Divide(m Runner, matches ...string) Runner { return divided{m, matches} }

type divided struct {
	inner   Runner
	matches []string
}

func (d divided) Run() int {
	flag.Parse()
	if testing.Short() || slices.ContainsFunc(selecting, isSet) {
		return d.inner.Run()
	}
	var others []*otherProcess
	for i, match := range d.matches {
		o, err := startOther("-test.run="+match, skip(d.matches[:i]))
		if err != nil {
			fmt.Fprintln(os.Stderr, "clustertest: start another process of tests:", err)
			return 1
		}
		others = append(others, o)
	}
	if err := flag.Set("test.skip", strings.Join(d.matches, "|")); err != nil {
		panic(err) // testing has that flag
	}
	code := d.inner.Run()
	for _, o := range others {
		code = max(code, o.wait())
	}
	return code
}

// skip is the flag that skips the tests of earlier processes.
func skip(matches []string) string { return "-test.skip=" + strings.Join(matches, "|") }

// selecting are flags of runs that are not divided: they select tests, or write one file.
var selecting = []string{
	"test.run", "test.skip", "test.list", "test.bench", "test.fuzz", "test.coverprofile", "test.gocoverdir",
	"test.cpuprofile", "test.memprofile", "test.blockprofile", "test.mutexprofile", "test.trace",
}

func isSet(name string) bool {
	f := flag.Lookup(name)
	return f != nil && f.Value.String() != ""
}

// otherProcess runs some of the tests.
type otherProcess struct {
	cmd    *exec.Cmd
	output bytes.Buffer
	dir    string
}

func startOther(args ...string) (*otherProcess, error) {
	dir, err := os.MkdirTemp("", "tests-")
	if err != nil {
		return nil, err
	}
	o := &otherProcess{dir: dir}
	for _, arg := range os.Args[1:] {
		if strings.HasPrefix(arg, "-test.testlogfile=") {
			arg = "-test.testlogfile=" + o.inputs()
		}
		args = append(args, arg)
	}
	o.cmd = exec.Command(os.Args[0], args...)
	o.cmd.Env = append(os.Environ(), timesEnv+"=") // this process counts for all
	o.cmd.Stdout, o.cmd.Stderr = &o.output, &o.output
	o.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	return o, o.cmd.Start()
}

// inputs is the file in which go test's cache has what the tests have read.
func (o *otherProcess) inputs() string { return filepath.Join(o.dir, "inputs") }

// wait prints what the process has printed, and returns its exit code.
func (o *otherProcess) wait() int {
	defer os.RemoveAll(o.dir)
	err := o.cmd.Wait()
	_, _ = os.Stdout.Write(o.output.Bytes())
	o.repeatInputs()
	if err != nil {
		fmt.Fprintln(os.Stderr, "clustertest: another process of tests:", err)
		return max(1, o.cmd.ProcessState.ExitCode())
	}
	return 0
}

// repeatInputs reads what the process has read, so that a change of it makes go test run
// the package again.
func (o *otherProcess) repeatInputs() {
	data, err := os.ReadFile(o.inputs())
	if err != nil {
		return // without a cache there is no file
	}
	for line := range strings.Lines(string(data)) {
		switch op, name, _ := strings.Cut(strings.TrimSpace(line), " "); op {
		case "getenv":
			_ = os.Getenv(name)
		case "stat":
			_, _ = os.Stat(name)
		case "open":
			if f, err := os.Open(name); err == nil {
				f.Close()
			}
		}
	}
}
