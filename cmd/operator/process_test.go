// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/skep-operator/skep/cells"
	"github.com/skep-operator/skep/resources/clustertest"
	"github.com/skep-operator/skep/resources/k8s"
	"github.com/skep-operator/skep/resources/operatortest"
	"github.com/skep-operator/skep/runtime/logging/logtest"
	"github.com/skep-operator/skep/runtime/waittest"
)

// asOperator in the environment makes the test binary an operator: real
// processes, with the race detector and what only tests can ask for.
const asOperator = "SKEP_TEST_AS_OPERATOR"

// operatorEnv is the environment of a process that is an operator. env are KEY=value pairs besides.
func operatorEnv(env ...string) []string {
	all := slices.Concat(os.Environ(), []string{asOperator + "=1", "GORACE=atexit_sleep_ms=0"}, env)
	if !slices.ContainsFunc(env, func(v string) bool { return strings.HasPrefix(v, "GOMEMLIMIT=") }) {
		all = append(all, "GOGC=400") // it lives for seconds: a small heap is of no use to it
	}
	return all
}

func TestMain(m *testing.M) {
	if path := os.Getenv(asLooks); path != "" {
		os.Exit(lookInTurn(path))
	}
	if os.Getenv(asOperator) != "" {
		os.Exit(operatorMain())
	}
	// Parts of about the same duration.
	parts := clustertest.Divide(m, "^TestInvariant[23]|^TestPlan|^TestLease|^TestAnEmptied", "^TestInvariant[45]", "^TestInvariant[168]|^TestEtcd")
	os.Exit(clustertest.Wrap(parts).Run())
}

func operatorMain() int { return cells.Main(withClouds.WithInTerm("leader", testCells...), version) }

// operator is a process of the operator.
type operator struct {
	t      *testing.T
	cmd    *exec.Cmd
	socket string
	log    *logtest.Buffer
	ended  chan struct{}
}

// quickLease are lease flags for tests that lose leases: the shortest that a
// lease can have.
var quickLease = []string{
	"--leader-election-lease-duration=2s", "--leader-election-renew-deadline=1s", "--leader-election-retry-period=100ms",
}

// start runs an operator against the API server of a kubeconfig. env are
// KEY=value pairs besides.
func start(t *testing.T, kubeconfig string, env []string, args ...string) *operator {
	t.Helper()
	return startAs(t, os.Args[0], kubeconfig, env, args...)
}

// startAs is start by another name of the program.
func startAs(t *testing.T, program, kubeconfig string, env []string, args ...string) *operator {
	t.Helper()
	dir, err := os.MkdirTemp("", "skep") // short: the paths of sockets are limited
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	o := &operator{t: t, socket: filepath.Join(dir, "s"), log: &logtest.Buffer{}, ended: make(chan struct{})}
	o.cmd = exec.Command(program, append([]string{
		"--k8s-kubeconfig-path=" + kubeconfig, "--operator-sock-path=" + o.socket,
		"--operator-api-serve-addr=127.0.0.1:0", "--enable-gops=false",
		"--operator-k8s-client-qps=1000", "--operator-k8s-client-burst=2000",
	}, args...)...)
	o.cmd.Env = operatorEnv(append([]string{k8s.StrictCause + "=1"}, env...)...)
	o.cmd.Stdout, o.cmd.Stderr = o.log, o.log
	// It dies with the test, however that ends.
	o.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := o.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		_ = o.cmd.Wait()
		close(o.ended)
	}()
	t.Cleanup(func() {
		o.kill()
		if t.Failed() {
			t.Logf("log of the operator:\n%s", o.log.WithoutOptions())
		}
		if _, race, found := strings.Cut(o.log.String(), "DATA RACE"); found {
			t.Errorf("the operator has a data race: %.4000s", race)
		}
		if n := o.log.Count("request without a declared permission"); n > 0 {
			t.Errorf("%d permissions are used and not declared: see its log", n)
		}
	})
	return o
}

// stop ends the operator in order. It returns the exit code.
func (o *operator) stop() int {
	o.t.Helper()
	o.signal(syscall.SIGTERM)
	select {
	case <-o.ended:
	case <-time.After(waittest.Limit):
		o.signal(syscall.SIGQUIT) // its stacks are worth reading
		<-o.ended
		o.t.Fatal("the operator does not stop")
	}
	if state := o.cmd.ProcessState; !state.Exited() {
		o.t.Logf("the operator did not exit by itself: %s", state)
	}
	return o.cmd.ProcessState.ExitCode()
}

// kill ends the operator at once. It may have ended already.
func (o *operator) kill() {
	_ = o.cmd.Process.Signal(syscall.SIGCONT)
	_ = o.cmd.Process.Kill()
	<-o.ended
}

func (o *operator) signal(s syscall.Signal) {
	o.t.Helper()
	if err := o.cmd.Process.Signal(s); err != nil && !errors.Is(err, os.ErrProcessDone) {
		o.t.Fatal(err)
	}
}

func (o *operator) running() bool {
	select {
	case <-o.ended:
		return false
	default:
		return true
	}
}

// status is what the operator tells at its socket. ok is false while it does
// not answer.
func (o *operator) status() (s status, ok bool) {
	client := http.Client{Timeout: 2 * time.Second, Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", o.socket)
		},
	}}
	resp, err := client.Get("http://operator/status")
	if err != nil {
		return s, false
	}
	defer resp.Body.Close()
	err = json.NewDecoder(resp.Body).Decode(&s)
	return s, err == nil
}

// status is the part of the operator's status that tests read.
type status struct {
	Election struct {
		Identity string
		Leading  bool
	}
	Degraded []degradedPart
	Sections []struct {
		Title string
		Rows  [][]string
	}
}

// rows are those of a table of the screen.
func (s status) rows(title string) [][]string {
	for _, section := range s.Sections {
		if section.Title == title {
			return section.Rows
		}
	}
	return nil
}

func (s status) degraded() string {
	var b strings.Builder
	for _, d := range s.Degraded {
		fmt.Fprintf(&b, "%s: %s: %s\n", d.ID, d.Message, d.Error)
	}
	return b.String()
}

// leads waits until the operator leads.
func (o *operator) leads() {
	o.t.Helper()
	o.until("it leads", func() bool {
		s, ok := o.status()
		return ok && s.Election.Leading
	})
}

// says waits until the log has the text n times.
func (o *operator) says(text string, n int) {
	o.t.Helper()
	o.until(fmt.Sprintf("it has said %q %d times", text, n), func() bool { return o.log.Count(text) >= n })
}

// until waits until something holds, while the operator runs.
func (o *operator) until(what string, holds func() bool) {
	o.t.Helper()
	eventually(o.t, what, func() bool {
		if !o.running() {
			o.t.Fatalf("the operator has ended (%s) before %s", o.cmd.ProcessState, what)
		}
		return holds()
	})
}

// eventually waits until something holds.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	operatortest.Eventually(t, what, holds)
}
