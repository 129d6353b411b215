// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package health

import (
	"bytes"
	"encoding/json"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/skep-operator/skep/cells/health/internal/status"
	"github.com/skep-operator/skep/resources/leading"
	"github.com/skep-operator/skep/runtime/command"
	"github.com/skep-operator/skep/runtime/graph"
	"github.com/skep-operator/skep/runtime/health"
)

// API-12: only the operator's user may open the socket, whatever the umask.
func TestSocketMode(t *testing.T) {
	defer syscall.Umask(syscall.Umask(0))
	o := start(t)
	info, err := os.Stat(o.socket)
	if err != nil {
		t.Fatal(err)
	}
	if info.Mode() != fs.ModeSocket|0o600 {
		t.Errorf("its mode is %s", info.Mode())
	}
	o.stop()
	if _, err := os.Stat(o.socket); !os.IsNotExist(err) {
		t.Errorf("it is still there: %v", err)
	}
}

func TestStaleSocket(t *testing.T) {
	path := socketPath(t)
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	l.(*net.UnixListener).SetUnlinkOnClose(false)
	l.Close() // as a process that was killed leaves it
	o := start(t, "--operator-sock-path="+path)
	if s := o.status("socket"); s.Level != health.OK {
		t.Errorf("it reports %+v", s)
	}
}

// What is not ours is never removed.
func TestSocketPathInUse(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	folder := t.TempDir()
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(file, link); err != nil {
		t.Fatal(err)
	}
	first := start(t)
	for path, want := range map[string]string{
		file: "exists and is no socket", folder: "exists and is no socket", link: "exists and is no socket",
		first.socket: "is in use by another operator", filepath.Join(file, "s"): "not a directory",
	} {
		t.Run(filepath.Base(path), func(t *testing.T) {
			o := start(t, "--operator-sock-path="+path)
			if s := o.status("socket"); s.Level != health.Degraded || !strings.Contains(s.Error, want) {
				t.Errorf("it reports %+v", s)
			}
			if got := o.get("/v1/livez"); got.code != 200 {
				t.Errorf("GET /v1/livez: %+v", got)
			}
		})
	}
	if text, err := os.ReadFile(file); string(text) != "precious" {
		t.Errorf("the file has %q, %v", text, err)
	}
	if _, err := run(first, "status", "--operator-sock-path="+first.socket); err != nil {
		t.Errorf("the first operator: %v", err)
	}
}

// API-12: where nothing may be written, as on a root that is read-only, the socket
// is in a folder for temporary files, and commands find it there.
func TestSocketWhereNothingMayBeWritten(t *testing.T) {
	const path = "--operator-sock-path=/sys/skep/operator.sock" // not even root may
	temporary := t.TempDir()
	t.Setenv("TMPDIR", temporary)
	if _, err := run(start(t), "status", path); err == nil || !strings.Contains(err.Error(), "there is no socket /sys/skep/operator.sock") {
		t.Errorf("without an operator: %v", err)
	}
	o := start(t, path)
	want := filepath.Join(temporary, "sys-skep-operator.sock")
	if s := o.status("socket"); s.Level != health.OK || s.Message != "serving at "+want {
		t.Errorf("it reports %+v", s)
	}
	if info, err := os.Stat(want); err != nil || info.Mode() != fs.ModeSocket|0o600 {
		t.Errorf("%v, %v", info, err)
	}
	if out, err := run(o, "status", path); err != nil || !strings.Contains(out, "DUTY") {
		t.Errorf("%v\n%s", err, out)
	}
	// One that another user has put there is not asked.
	if err := os.Chown(want, 12345, 12345); err != nil {
		t.Skipf("only root may give files away: %v", err)
	}
	if _, err := run(o, "status", path); err == nil || !strings.Contains(err.Error(), "belongs to user 12345") {
		t.Errorf("another user's socket: %v", err)
	}
}

func TestNoSocket(t *testing.T) {
	o := start(t, "--operator-sock-path=")
	if s := o.status("socket"); s.Reports != 0 {
		t.Errorf("it reports %+v", s)
	}
}

// run runs a sub-command of a program made of the same cells.
func run(o *operator, args ...string) (string, error) {
	var out bytes.Buffer
	root := command.New("operator", (&operator{election: &fakeElection{}}).cells())
	root.SetArgs(args)
	root.SetOut(&out)
	root.SetErr(&out)
	err := root.ExecuteContext(o.t.Context())
	return out.String(), err
}

// API-13: one screen tells who leads, the duties, what modules add, and what
// is degraded and why.
func TestStatus(t *testing.T) {
	o := start(t)
	o.election.set(leading.ElectionStatus{Lease: "kube-system/lock", Identity: "me", Holder: "me", Leading: true, Since: time.Now()})
	o.health.Reporter("duty").OK("fine")
	o.health.Reporter("test").Child("pool").Degraded("nodes get no addresses", os.ErrPermission)
	out, err := run(o, "status", "--operator-sock-path="+o.socket)
	if err != nil {
		t.Fatal(err)
	}
	out = regexp.MustCompile(`\b\d+s\b`).ReplaceAllString(out, "0s") // it may have taken a moment
	for _, want := range []string{
		"Operator    operator 1.2.3, up ", "API server  " + nowhere, "Leader      this replica (me) for 0s, by lease kube-system/lock",
		"duty  OK     Does something for the cluster", "DUTY  STATE  ABOUT\n", "1 more are off: status -v says why\n",
		"Streams:\nSTREAM  LAG\npods    12ms\n", "Degraded:\n", "Degraded pool: nodes get no addresses: permission denied (0s)",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is missing in\n%s", want, out)
		}
	}
	if all, err := run(o, "status", "-v", "--operator-sock-path="+o.socket); err != nil || !strings.Contains(all, "other  off    other needs that pigs fly (--gops-port)") {
		t.Errorf("%v\n%s", err, all)
	}
	if n := strings.Count(out, "\n"); n > 40 {
		t.Errorf("%d lines are no screen:\n%s", n, out)
	}

	o.election.set(leading.ElectionStatus{Identity: "me", Holder: "other"})
	out, err = run(o, "status", "--json", "--operator-sock-path="+o.socket)
	if err != nil {
		t.Fatal(err)
	}
	var s status.Screen
	if err := json.Unmarshal([]byte(out), &s); err != nil {
		t.Fatal(err)
	}
	if s.Duties[0].State != "standing by" || s.Election.Holder != "other" || s.Version != "1.2.3" || len(s.Sections) != 1 {
		t.Errorf("as JSON: %s", out)
	}
}

func TestStatusHealthAndGraph(t *testing.T) {
	o := start(t)
	out, err := run(o, "status", "health", "--operator-sock-path="+o.socket)
	if err != nil || !strings.Contains(out, "OK       socket: serving at "+o.socket) {
		t.Errorf("%v\n%s", err, out)
	}
	out, err = run(o, "status", "graph", "--operator-sock-path="+o.socket)
	if err != nil {
		t.Fatal(err)
	}
	var g graph.Graph
	if err := json.Unmarshal([]byte(out), &g); err != nil {
		t.Fatal(err)
	}
	if m := g.Module("duty"); m == nil || m.Term != "leader" {
		t.Errorf("the graph lacks the duty:\n%s", out)
	}
}

// Errors say what to do.
func TestStatusErrors(t *testing.T) {
	o := start(t)
	missing := filepath.Join(t.TempDir(), "none")
	if _, err := run(o, "status", "--operator-sock-path="+missing); err == nil || err.Error() != "no operator is running here: there is no socket "+missing+" (--operator-sock-path)" {
		t.Errorf("without an operator: %v", err)
	}
	// The options of this process may be wrong: it is the other one that runs.
	out, err := run(o, "status", "--operator-sock-path="+o.socket, "--gops-port=many")
	if err != nil || !strings.Contains(out, "gops-port") || !strings.Contains(out, "DUTY") {
		t.Errorf("%v\n%s", err, out)
	}
}
