// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package nodesync

import (
	"testing"
	"time"

	"github.com/skep-operator/skep/resources/kvstore"
)

func entry(value string, lease kvstore.LeaseID, revision int64) kvstore.Entry {
	return kvstore.Entry{Key: "cilium/state/nodes/v1/cluster1/n", Value: []byte(value), Lease: lease, ModRevision: revision}
}

// NSYN-2 and NSYN-3.
func TestNeedsWrite(t *testing.T) {
	const ours, agents = `{"Name":"n","Cluster":"cluster1","Source":"custom-resource"}`, `{"Name":"n","Cluster":"cluster1","Source":"local"}`
	for name, c := range map[string]struct {
		is    kvstore.Entry
		needs bool
	}{
		"absent":              {kvstore.Entry{}, true},
		"as it should be":     {entry(ours, 0, 7), false},
		"of an agent":         {entry(agents, 5, 7), false},
		"ours on a lease":     {entry(ours, 5, 7), false},
		"an agent's, without": {entry(agents, 0, 7), true},
		"not JSON":            {entry("{", 0, 7), true},
		"not JSON, an agent":  {entry("{", 5, 7), false},
	} {
		k := observedKey{}
		if c.is.ModRevision != 0 {
			k = observe(k, "cluster1", "n", c.is, time.Now())
		}
		if needs := needsWrite(k, []byte(ours)); needs != c.needs {
			t.Errorf("%s: %t", name, needs)
		}
	}
}

// NSYN-13: what may be deleted says that it is of this node and cluster.
func TestReadable(t *testing.T) {
	for value, want := range map[string]bool{
		`{"Name":"n","Cluster":"cluster1","Source":"local","Labels":null}`: true,
		`{"Name":"m","Cluster":"cluster1"}`:                                false,
		`{"Name":"n","Cluster":"cluster10"}`:                               false,
		`{"Name":7,"Cluster":"cluster1"}`:                                  false,
		`{}`:                                                               false,
		`null`:                                                             false,
		``:                                                                 false,
		`[{"Name":"n","Cluster":"cluster1"}]`:                              false,
	} {
		if got := observe(observedKey{}, "cluster1", "n", entry(value, 0, 7), time.Now()).readable; got != want {
			t.Errorf("%s: %t", value, got)
		}
	}
}

// Number 24 of the contract's nodes.md; NSYN-12: the key of an agent that has just started is left alone for a minute, whatever is written to it.
func TestTooNew(t *testing.T) {
	began := time.Now()
	ours := observe(observedKey{}, "cluster1", "n", entry("{}", 0, 7), began)
	agents := observe(observedKey{}, "cluster1", "n", entry("{}", 5, 7), began)
	again := observe(agents, "cluster1", "n", entry("{ }", 5, 8), began.Add(59*time.Second))
	for name, c := range map[string]struct {
		key   observedKey
		after time.Duration
		want  bool
	}{
		"ours":                  {ours, 0, false},
		"an agent's":            {agents, 59 * time.Second, true},
		"after a minute":        {agents, time.Minute, false},
		"written meanwhile":     {again, 59 * time.Second, true},
		"and after a minute so": {again, time.Minute, false},
	} {
		if got := c.key.tooNew(timing{agentGrace: time.Minute}, began.Add(c.after)); got != c.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}
