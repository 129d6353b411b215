// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package identity

import (
	"fmt"
	"strings"
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
	if got, isForLarge := tb.brakedNamespace(); got != "bb" || isForLarge {
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
	reasons := made()
	if held, _ := tb.brakedNamespace(); len(reasons) > 2 || held != "" {
		t.Errorf("after two minutes of rest: %q, braked is %q", reasons, held)
	}
	for _, s := range tb.sets {
		if s.pods > 0 && s.number == 0 {
			t.Errorf("%s has no number", s.labels)
		}
	}
}

// ID-44: one pod with large labels changes them all the time, and the memory of what waits for its collection stays small, however many numbers there are.
func TestOnePodWithLargeLabels(t *testing.T) {
	tb := newTable("c", identity.Range{Min: 256, Max: 65535}, makeFilters(nil, nil), agents.NewFleet(release.Configured{}), func(int) int { return 0 })
	tb.now = time.Unix(1000, 0)
	tb.upsertNamespace(namespaceOf("bb", nil))
	tb.markSynced()
	last, large := "", strings.Repeat("x", 63)
	for i := range 50 * 60 {
		tb.now = tb.now.Add(time.Second / 50)
		of := pairs{"n": fmt.Sprint(i)}
		for n := range 200 {
			of[fmt.Sprintf("label-%d", n)] = large
		}
		tb.upsertPod(podOf("bb", "restless", of))
		dirty, _ := tb.drain()
		for _, s := range dirty {
			if todo := tb.nextAction(s.labels); todo.number != 0 {
				tb.recordCreate(s.labels, observation{number: todo.number, labels: s.labels, created: 1, revision: slim.Revision(i + 1)}, true)
			} else if s.pods > 0 {
				last = todo.reason
				if todo.pause > largePause {
					t.Fatalf("its labels are kept for %s", todo.pause)
				}
			}
		}
	}
	if used := tb.numbers.used(); used > 100 || last != brakedLarge {
		t.Errorf("after a minute there are %d identities; the last pod %q", used, last)
	}
	if held, isForLarge := tb.brakedNamespace(); held != "bb" || !isForLarge {
		t.Errorf("braked is %q, for large labels: %t", held, isForLarge)
	}
	tb.now = tb.now.Add(3 * time.Minute)
	if held, _ := tb.brakedNamespace(); held != "" {
		t.Errorf("after three minutes braked is %q", held)
	}
}

// ID-47: a pod whose labels are too large has no identity, also if it had one, and has one again when they are smaller.
func TestPodWithTooLargeLabels(t *testing.T) {
	tb := newTable("c", identity.Range{Min: 256, Max: 65535}, makeFilters(nil, nil), agents.NewFleet(release.Configured{}), func(int) int { return 0 })
	tb.upsertNamespace(namespaceOf("bb", nil))
	tb.markSynced()
	of := pairs{}
	for n := range 1000 {
		of[fmt.Sprintf("label-%d", n)] = strings.Repeat("x", 63)
	}
	for i, want := range []string{"", largeLabels, ""} {
		p := podOf("bb", "web", pairs{"app": "web"})
		if want != "" {
			p = podOf("bb", "web", of)
		}
		p.Trim()
		if reason := tb.upsertPod(p); reason != want || p.LabelsCut != (want != "") {
			t.Errorf("%d: %q, want %q", i, reason, want)
		}
	}
	key := slim.Key{Namespace: "bb", Name: "web"}
	for i, news := range []bool{tb.setLarge(key, true), !tb.setLarge(key, true), !tb.setLarge(key, false), tb.setLarge(key, true)} {
		if !news {
			t.Errorf("%d is not as it was reported", i)
		}
	}
}
