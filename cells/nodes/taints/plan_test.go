// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package taints

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/skep-operator/skep/resources/agents"
	"github.com/skep-operator/skep/resources/stream/slim"
	"github.com/skep-operator/skep/runtime/cell"
)

func slimTaint(key, value, effect string) agents.Taint {
	return agents.Taint{Key: slim.MakeString(key), Value: slim.MakeString(value), Effect: slim.MakeString(effect)}
}

// What is sent, to the letter: NTNT-E1, NTNT-E2 and NTNT-E3.
func TestPatches(t *testing.T) {
	ours, x := slimTaint(agentKey, "true", "NoExecute"), slimTaint("x", "", "NoSchedule")
	timed := slimTaint("t", "", "NoExecute")
	timed.TimeAdded = slim.MakeTime(time.Date(2024, 8, 20, 10, 0, 0, 0, time.UTC))
	const (
		oursText  = `{"key":"node.cilium.io/agent-not-ready","value":"true","effect":"NoExecute"}`
		xText     = `{"key":"x","effect":"NoSchedule"}`
		timedText = `{"key":"t","effect":"NoExecute","timeAdded":"2024-08-20T10:00:00Z"}`
		setText   = `{"key":"node.cilium.io/agent-not-ready","effect":"NoSchedule"}`
	)
	for _, c := range []struct {
		do         action
		taints     []agents.Taint
		test       string
		op, result string
	}{
		{removeTaint, []agents.Taint{ours, x}, "[" + oursText + "," + xText + "]", "replace", "[" + xText + "]"},
		{removeTaint, []agents.Taint{timed, ours, x, ours}, "[" + timedText + "," + oursText + "," + xText + "," + oursText + "]", "replace", "[" + timedText + "," + xText + "]"},
		{removeTaint, []agents.Taint{ours}, "[" + oursText + "]", "replace", "null"},
		{setTaint, []agents.Taint{x}, "[" + xText + "]", "replace", "[" + xText + "," + setText + "]"},
		{setTaint, nil, "null", "add", "[" + setText + "]"},
	} {
		want := `[{"op":"test","path":"/spec/taints","value":` + c.test + `},{"op":"` + c.op + `","path":"/spec/taints","value":` + c.result + `}]`
		got, err := taintPatch(c.taints, taintsAfter(c.do, agentKey, c.taints))
		if err != nil || string(got) != want {
			t.Errorf("%s: %s, %v\nwant %s", c.do, got, err, want)
		}
	}
	got, err := conditionPatch(time.Date(2024, 8, 20, 12, 0, 0, 999, time.FixedZone("", 7200)))
	const want = `{"status":{"conditions":[{"type":"NetworkUnavailable","status":"False","lastHeartbeatTime":"2024-08-20T10:00:00Z",` +
		`"lastTransitionTime":"2024-08-20T10:00:00Z","reason":"CiliumIsUp","message":"Cilium is running on this node"}]}}`
	if err != nil || string(got) != want {
		t.Errorf("%s, %v\nwant %s", got, err, want)
	}
}

// Whatever the taints: others stay in their order, and what is done leaves nothing to do.
func TestTaintsAfter(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	all := Config{RemoveCiliumNodeTaints: true, SetCiliumNodeTaints: true}
	foreign := func(taints []agents.Taint) []agents.Taint {
		return slices.DeleteFunc(slices.Clone(taints), func(t agents.Taint) bool { return t.Key.String() == agentKey })
	}
	for range 1000 {
		n := &agents.Node{}
		for range r.IntN(5) {
			key := []string{"a", "b", agentKey}[r.IntN(3)]
			n.Spec.Taints = append(n.Spec.Taints, slimTaint(key, "", []string{"NoSchedule", "NoExecute"}[r.IntN(2)]))
		}
		before := slices.Clone(n.Spec.Taints)
		agent := agents.State(r.IntN(4))
		do, _ := taintAction(all, agentKey, n, agent)
		if do == nothing {
			if tainted := n.HasTaint(agentKey); agent == agents.Ready && tainted || agent == agents.NotReady && !tainted {
				t.Fatalf("nothing is done to %v with an agent in state %d", before, agent)
			}
			continue
		}
		after := taintsAfter(do, agentKey, n.Spec.Taints)
		if !slices.Equal(n.Spec.Taints, before) || !slices.Equal(foreign(after), foreign(before)) {
			t.Fatalf("%s makes %v of %v", do, after, before)
		}
		n.Spec.Taints = after
		if again, _ := taintAction(all, agentKey, n, agent); again != nothing || n.HasTaint(agentKey) != (agent == agents.NotReady) {
			t.Fatalf("after %s of %v there is %s to do", do, before, again)
		}
	}
}

// NTNT-1.
func TestConfig(t *testing.T) {
	for _, c := range []struct {
		config  Config
		on      bool
		invalid string
	}{
		{Config{RemoveCiliumNodeTaints: true, TaintSyncWorkers: 10}, true, ""},
		{Config{SetCiliumIsUpCondition: true, TaintSyncWorkers: 10}, true, ""},
		{Config{TaintSyncWorkers: 1}, false, ""},
		{Config{SetCiliumNodeTaints: true, TaintSyncWorkers: 1}, false, "set-cilium-node-taints"},
		{Config{RemoveCiliumNodeTaints: true}, true, "taint-sync-workers"},
	} {
		err := cell.ValidateConfig(c.config)
		if c.config.enabled() != c.on || (err == nil) != (c.invalid == "") || err != nil && !strings.Contains(err.Error(), c.invalid) {
			t.Errorf("%+v: enabled %t, %v", c.config, c.config.enabled(), err)
		}
	}
}
