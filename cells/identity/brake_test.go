// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package identity

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/skep-operator/skep/resources/agents"
	"github.com/skep-operator/skep/resources/cluster/release"
	"github.com/skep-operator/skep/resources/domain/identity"
	"github.com/skep-operator/skep/resources/stream/ciliumio"
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

// ID-44; number 4.6 of the contract's tenants.md: with --identity-brake=false no namespace is braked, as in the original: one pod uses up all numbers, whatever the
// size of its labels.
func TestWithoutBrake(t *testing.T) {
	for name, large := range map[string]bool{"small labels": false, "large labels": true} {
		t.Run(name, func(t *testing.T) {
			tb := newTable("c", identity.Range{Min: 256, Max: 455}, makeFilters(nil, nil), agents.NewFleet(release.Configured{}), func(int) int { return 0 })
			tb.unbraked, tb.now = true, time.Unix(1000, 0)
			tb.upsertNamespace(namespaceOf("bb", nil))
			tb.markSynced()
			revision := slim.Revision(0)
			for i := range 200 {
				tb.now = tb.now.Add(time.Second / 74)
				of := pairs{"n": fmt.Sprint(i)}
				if large {
					of = manyLabels(30, i)
				}
				tb.upsertPod(podOf("bb", "restless", of))
				if waits := createAll(tb, &revision); len(waits) > 0 {
					t.Fatalf("after %d changes: %v", i, waits)
				}
			}
			if held, _ := tb.brakedNamespace(); tb.numbers.free() != 0 || held != "" {
				t.Errorf("%d numbers are free, braked is %q", tb.numbers.free(), held)
			}
		})
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

// idleOf is how many bytes the sets have that no pod has, ordinary ones aside.
func idleOf(t *table) (bytes int) {
	for of, s := range t.sets {
		if s.pods == 0 && of.Size() >= 2*setUnit {
			bytes += of.Size()
		}
	}
	return bytes
}

// createAll makes what can be made, and returns how many wait for which reason.
func createAll(tb *table, revision *slim.Revision) (waits map[string]int) {
	waits = map[string]int{}
	dirty, _ := tb.drain()
	for _, s := range dirty {
		todo := tb.nextAction(s.labels)
		if todo.number == 0 {
			if s.pods > 0 {
				waits[todo.reason]++
			}
			continue
		}
		*revision++
		now := observation{number: todo.number, labels: s.labels, created: 1, revision: *revision}
		if todo.edited == nil {
			tb.recordCreate(s.labels, now, true)
		} else {
			tb.recordRestore(s.labels, now)
		}
	}
	return waits
}

// manyLabels are labels of a pod that have some 385 bytes each, and a number.
func manyLabels(labels, number int) pairs {
	of := pairs{}
	for i := range labels {
		of[fmt.Sprintf("%s/%s-%d", strings.TrimSuffix(strings.Repeat(strings.Repeat("d", 62)+".", 4), "."), strings.Repeat("n", 58), i)] = strings.Repeat("v", 63)
	}
	of["number"] = fmt.Sprint(number)
	return of
}

// ID-44, numbers K3 and 4.6 of the contract's tenants.md: a hundred pods with label sets just below those that are large change them all the time, and what
// waits for its collection has a bounded size, however many numbers there are.
func TestManyPodsWithManyLabels(t *testing.T) {
	tb := newTable("c", identity.Range{Min: 256, Max: 65535}, makeFilters(nil, nil), agents.NewFleet(release.Configured{}), func(int) int { return 0 })
	tb.now = time.Unix(1000, 0)
	for _, name := range []string{"bb", "aa"} {
		tb.upsertNamespace(namespaceOf(name, nil))
	}
	tb.markSynced()
	revision, flip := slim.Revision(0), 0
	waits := map[string]int{}
	for range 60 {
		for i := range 100 {
			flip++
			tb.now = tb.now.Add(10 * time.Millisecond)
			tb.upsertPod(podOf("bb", fmt.Sprint("restless-", i), manyLabels(20, flip)))
			waits = createAll(tb, &revision)
		}
	}
	for of := range tb.sets {
		if of.Size() < 7<<10 || of.Size() >= largeSet {
			t.Fatalf("a set has %d bytes", of.Size())
		}
	}
	if idle := idleOf(tb); idle < mostIdle || idle > mostIdle+2<<20 || idle != tb.idle {
		t.Errorf("after a minute %d bytes are not in use, and %d are counted", idle, tb.idle)
	}
	if waits[brakedLarge] != 1 {
		t.Errorf("the last pod: %v", waits)
	}
	if held, isForLarge := tb.brakedNamespace(); held != "bb" || !isForLarge {
		t.Errorf("braked is %q, for large labels: %t", held, isForLarge)
	}
	for _, p := range []*slim.Pod{
		podOf("aa", "web", pairs{"app": "web"}), podOf("aa", "large", manyLabels(20, 0)), podOf("bb", "ordinary", pairs{"app": "web"}),
	} {
		tb.upsertPod(p)
		if waits := createAll(tb, &revision); len(waits) > 0 {
			t.Errorf("%s/%s: %v", p.Namespace, p.Name, waits)
		}
	}
	for number, o := range tb.objects { // they are collected
		if o.set.pods == 0 {
			tb.deleteObject(number.String(), revision)
		}
	}
	for _, s := range tb.sets {
		tb.enqueue(s)
	}
	if waits := createAll(tb, &revision); waits[brakedLarge] > 0 || tb.idle != 0 {
		t.Errorf("once they are collected %d wait, and %d bytes are counted", waits[brakedLarge], tb.idle)
	}
	for of, s := range tb.sets {
		if s.number == 0 {
			t.Errorf("%.100s has no number", of)
		}
	}
}

// ID-44: over any history of pods and identities, the bytes of what no pod has are counted.
func TestIdleBytesAreCounted(t *testing.T) {
	for seed := range uint64(50) {
		r := rand.New(rand.NewPCG(seed, 44))
		tb := newTable("c", identity.Range{Min: 256, Max: 300}, makeFilters(nil, nil), agents.NewFleet(release.Configured{}), func(of int) int { return r.IntN(of) })
		tb.now = time.Unix(1000, 0)
		revision := slim.Revision(0)
		for step := range 300 {
			tb.now = tb.now.Add(time.Minute)
			key := slim.Key{Namespace: "n", Name: fmt.Sprint("p", r.IntN(5))}
			switch r.IntN(8) {
			case 0, 1, 2:
				tb.upsertPod(podOf(key.Namespace, key.Name, manyLabels(r.IntN(5), r.IntN(3))))
			case 3:
				tb.deletePod(key)
			case 4:
				tb.upsertNamespace(namespaceOf("n", pairs{"team": fmt.Sprint(r.IntN(2))}))
			case 5:
				revision++
				tb.deleteObject(identity.Number(256+r.IntN(45)).String(), revision)
			case 6:
				if !tb.synced {
					tb.markSynced()
				}
				tb.expireQuarantine()
			case 7:
				if p, _ := tb.pods.Get(key); p != nil && p.template.set != nil { // an agent makes one of the same labels, or edits another
					revision++
					o := &ciliumio.Identity{SecurityLabels: p.template.set.labels}
					o.Name, o.ResourceVersion = identity.Number(256+r.IntN(45)).String(), revision
					tb.upsertObject(o)
				}
			}
			if r.IntN(2) == 0 {
				createAll(tb, &revision)
			}
			if idle := idleOf(tb); idle != tb.idle {
				t.Fatalf("seed %d, step %d: %d bytes are not in use, and %d are counted", seed, step, idle, tb.idle)
			}
		}
	}
}
