// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/skep-operator/skep/resources/clustertest"
	"github.com/skep-operator/skep/resources/explain"
)

// ask runs a command of the operator's that asks the running one.
func (o *operator) ask(args ...string) string { return o.askFor(0, args...) }

// askFor is ask, of a command that exits with a code.
func (o *operator) askFor(code int, args ...string) string {
	o.t.Helper()
	cmd := exec.Command(os.Args[0], append(args, "--operator-sock-path="+o.socket)...)
	cmd.Env = operatorEnv()
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if cmd.ProcessState.ExitCode() != code {
		o.t.Fatalf("%v: %v", args, err)
	}
	return string(out)
}

// asksInShell asks by the names of the original's shell. CONF-18; number B8 of the contract's operator-shell.md.
func (o *operator) asksInShell() {
	o.t.Helper()
	var dump struct{ Sections []any }
	if text := o.ask("shell", "db/dump"); json.Unmarshal([]byte(text), &dump) != nil || len(dump.Sections) == 0 {
		o.t.Errorf("shell db/dump: %s", text)
	}
	if text := o.ask("shell", "health"); !strings.Contains(text, "leader") {
		o.t.Errorf("shell health: %s", text)
	}
	o.askFor(1, "shell", "db/tables")
}

// Every mutating call in the audit log is in the operator's own list of writes,
// with its cause, and can be explained.
func TestEveryWriteHasItsCause(t *testing.T) {
	w := newWorld(t)
	audit := w.Audit(t)
	o, _ := w.run("explained", nil)
	o.says("caches synced, allocating pod CIDRs", 1)
	w.addNodes("node", 30)
	w.addNode("foreign", "192.168.7.0/24")
	w.settled()
	w.refused("foreign")
	w.served("last")

	made := map[string]int{}
	lines := json.NewDecoder(strings.NewReader(o.ask("writes", "--json")))
	for lines.More() {
		var e explain.Write
		if err := lines.Decode(&e); err != nil {
			t.Fatal(err)
		}
		if e.Cause == nil || e.Cause.Rule == "" || len(e.Cause.Triggers) == 0 {
			t.Errorf("without a cause: %s", e)
		}
		made[fmt.Sprint(e.Verb, e.Resource, e.Name, e.Subresource)]++
	}
	writes := w.requests(audit, "explained").writes()
	if len(writes) < 32 { // one for each node
		t.Fatalf("only %d writes: the test shows nothing", len(writes))
	}
	for _, e := range writes {
		key := fmt.Sprint(e.Verb, groupResource(e), e.ObjectRef.Name, e.ObjectRef.Subresource)
		if made[key]--; made[key] < 0 {
			t.Errorf("not among the writes: %s", requests{e})
		}
	}

	for of, want := range map[string]string{
		"CiliumNode/node-7":    "ipam.clusterpool allocate, set off by CiliumNode node-7",
		"ciliumnodes/foreign":  "update ciliumnodes.cilium.io foreign (status): ok at ",
		"CiliumNode/no-such-1": "Nothing is remembered",
	} {
		if text := o.ask("explain", of); !strings.Contains(text, want) {
			t.Errorf("explain %s lacks %q:\n%s", of, want, text)
		}
	}
	o.asksInShell()
	standby, _ := w.run("standby", nil)
	standby.says("standing by", 1)
	for _, args := range [][]string{{"explain", "CiliumNode/node-7"}, {"writes"}} {
		if text := standby.askFor(explain.OnStandby, args...); !strings.Contains(text, "leads: ask there:\n  on host ") {
			t.Errorf("%v: a standby does not say who leads:\n%s", args, text)
		}
	}
	if text := standby.ask("status"); !strings.Contains(text, "\nAsk it      on host ") {
		t.Errorf("the status of a standby does not say how to ask the leader:\n%s", text)
	}
}

func groupResource(e clustertest.AuditEvent) string {
	if e.ObjectRef.APIGroup == "" {
		return e.ObjectRef.Resource
	}
	return e.ObjectRef.Resource + "." + e.ObjectRef.APIGroup
}
