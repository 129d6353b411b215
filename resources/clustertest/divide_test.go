// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package clustertest

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// dividedEnv makes this test binary one whose runs are divided: its value is the -skip of the
// process that fails.
const dividedEnv = "SKEP_TEST_DIVIDED"

// printingRunner prints which tests it would run.
type printingRunner struct{ fails string }

func (p printingRunner) Run() int {
	run, skip := flag.Lookup("test.run").Value.String(), flag.Lookup("test.skip").Value.String()
	fmt.Printf("run=%q skip=%q\n", run, skip)
	if skip == p.fails {
		return 3
	}
	return 0
}

func TestDivide(t *testing.T) {
	const all = `run="" skip="^TestA|^TestB"
run="^TestA" skip=""
run="^TestB" skip="^TestA"
`
	for name, c := range map[string]struct {
		env, flags, want string
		code             int
	}{
		"all succeed":         {"none", "", all, 0},
		"one fails":           {"^TestA", "", all, 3},
		"this one fails":      {"^TestA|^TestB", "", all, 3},
		"selected tests":      {"none", "-test.run=TestB", "run=\"TestB\" skip=\"\"\n", 0},
		"short":               {"none", "-test.short", "run=\"\" skip=\"\"\n", 0},
		"a profile, one file": {"none", "-test.cpuprofile=x", "run=\"\" skip=\"\"\n", 0},
	} {
		cmd := exec.Command(os.Args[0], strings.Fields(c.flags)...)
		cmd.Env = append(os.Environ(), dividedEnv+"="+c.env)
		output, err := cmd.Output()
		if string(output) != c.want || cmd.ProcessState.ExitCode() != c.code {
			t.Errorf("%s: exit code %d, %v, and\n%swant\n%s", name, cmd.ProcessState.ExitCode(), err, output, c.want)
		}
	}
}

func TestTimes(t *testing.T) {
	path := filepath.Join(t.TempDir(), "times")
	t.Setenv(timesEnv, path)
	if err := recordTimes(time.Now().Add(-time.Hour)); err != nil {
		t.Fatal(err)
	}
	var cpu, wall int
	data, err := os.ReadFile(path)
	if n, _ := fmt.Sscanf(string(data), "./resources/clustertest %d %d\n", &cpu, &wall); n != 2 || wall != 3600 {
		t.Errorf("%q, %v", data, err)
	}
}
