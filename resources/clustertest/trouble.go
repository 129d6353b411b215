// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package clustertest

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// Trouble kills, pauses and brings back the members of an etcd at random. It
// belongs to one goroutine.
type Trouble struct {
	etcd    *Etcd
	random  *rand.Rand
	members []string
	away    map[string]func(testing.TB, string) // and how it comes back
	done    map[string]int
}

// NewTrouble returns trouble for an etcd of several members, each a process of its
// own. The same seed gives the same row of deeds.
func NewTrouble(tb testing.TB, e *Etcd, seed uint64) *Trouble {
	tb.Helper()
	t := &Trouble{etcd: e, random: rand.New(rand.NewPCG(seed, 3)), away: map[string]func(testing.TB, string){}, done: map[string]int{}}
	for _, m := range e.Members(tb) {
		t.members = append(t.members, m.Name)
	}
	return t
}

// Act does something to a member: one that is away comes back, another is killed
// or paused. A quorum may be gone after it.
func (t *Trouble) Act(tb testing.TB) {
	tb.Helper()
	name := t.members[t.random.IntN(len(t.members))]
	kill := t.random.IntN(2) == 0
	switch back, away := t.away[name]; {
	case away:
		t.note("brought back")
		back(tb, name)
		delete(t.away, name)
	case kill:
		t.kill(tb, name)
	default:
		t.pause(tb, name)
	}
}

func (t *Trouble) kill(tb testing.TB, name string) {
	tb.Helper()
	t.note("killed")
	t.etcd.Kill(tb, name)
	t.away[name] = t.etcd.Start
}

func (t *Trouble) pause(tb testing.TB, name string) {
	tb.Helper()
	t.note("paused")
	t.etcd.Pause(tb, name)
	t.away[name] = t.etcd.Resume
}

// KillAll and PauseAll take all members away that are there.
func (t *Trouble) KillAll(tb testing.TB) { tb.Helper(); t.all(tb, t.kill) }

// PauseAll: see KillAll.
func (t *Trouble) PauseAll(tb testing.TB) { tb.Helper(); t.all(tb, t.pause) }

func (t *Trouble) all(tb testing.TB, harm func(testing.TB, string)) {
	tb.Helper()
	for _, name := range t.members {
		if t.away[name] == nil {
			harm(tb, name)
		}
	}
}

// Heal brings all members back. They serve when they have found each other.
func (t *Trouble) Heal(tb testing.TB) {
	tb.Helper()
	for _, name := range slices.Sorted(maps.Keys(t.away)) {
		t.away[name](tb, name)
	}
	clear(t.away)
}

func (t *Trouble) note(what string) { t.done[what]++ }

// String says how often what was done.
func (t *Trouble) String() string {
	var parts []string
	for _, what := range slices.Sorted(maps.Keys(t.done)) {
		parts = append(parts, fmt.Sprintf("%s %d times", what, t.done[what]))
	}
	return strings.Join(parts, ", ")
}
