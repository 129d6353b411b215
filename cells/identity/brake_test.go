// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package identity

import (
	"fmt"
	"testing"
	"time"

	"github.com/skep-operator/skep/resources/agents"
	"github.com/skep-operator/skep/resources/cluster/release"
	"github.com/skep-operator/skep/resources/domain/identity"
	"github.com/skep-operator/skep/resources/stream/slim"
)

// ID-44; number 4.6 of the contract's tenants.md: one pod changes its labels 74 times a second, and nothing is collected.
func TestOnePodDoesNotTakeAllNumbers(t *testing.T) {
	tb := newTable("c", identity.Range{Min: 256, Max: 2255}, makeFilters(nil, nil), agents.NewFleet(release.Configured{}), func(int) int { return 0 })
	tb.now = time.Unix(1000, 0)
	for _, name := range []string{"bb", "aa"} {
		tb.upsertNamespace(namespaceOf(name, nil))
	}
	tb.markSynced()
	revision := slim.Revision(0)
	// made makes what can be made, and returns the reasons of what cannot.
	made := func() (reasons []string) {
		dirty, _ := tb.drain()
		for _, s := range dirty {
			todo := tb.nextAction(s.labels)
			if todo.number == 0 {
				reasons = append(reasons, todo.reason)
				continue
			}
			revision++
			tb.recordCreate(s.labels, observation{number: todo.number, labels: s.labels, created: 1, revision: revision}, true)
		}
		return reasons
	}
	for i := range 74 * 60 {
		tb.now = tb.now.Add(time.Second / 74)
		tb.upsertPod(podOf("bb", "restless", pairs{"n": fmt.Sprint(i)}))
		made()
	}
	if used := tb.numbers.used(); used < 1000 || used > 1200 {
		t.Errorf("after a minute %d of 2000 numbers are in use", used)
	}
	if got := tb.brakedNamespace(); got != "bb" {
		t.Errorf("braked is %q", got)
	}
	tb.upsertPod(podOf("aa", "web", pairs{"app": "web"}))
	if reasons := made(); len(reasons) > 0 {
		t.Errorf("a pod of another namespace: %q", reasons)
	}
	tb.upsertPod(podOf("bb", "another", pairs{"app": "web"}))
	if reasons := made(); len(reasons) != 1 || reasons[0] != braked {
		t.Errorf("another pod of the namespace: %q", reasons)
	}
	tb.now = tb.now.Add(2 * time.Minute)
	for _, s := range tb.sets {
		if s.pods > 0 {
			tb.enqueue(s)
		}
	}
	if reasons := made(); len(reasons) > 2 || tb.brakedNamespace() != "" {
		t.Errorf("after two minutes of rest: %q, braked is %q", reasons, tb.brakedNamespace())
	}
	for _, s := range tb.sets {
		if s.pods > 0 && s.number == 0 {
			t.Errorf("%s has no number", s.labels)
		}
	}
}
