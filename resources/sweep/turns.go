// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package sweep

import (
	"slices"
	"time"

	"github.com/skep-operator/skep/resources/internal/fair"
)

// usualPortion is how many candidates one sweep deletes where namespaces have turns: at 20 a second, a new scan begins after 10 s.
const usualPortion = 200

// nextPortion returns what one sweep deletes of what is due, in its order, and how many are left for the next one. Candidates go by turns of their namespaces: one
// namespace with many holds up another one by one delete at a time. Those of a namespace that wait longest are first. One that failed waits anew, so that it
// keeps no others of its namespace for ever.
func (s *Sweep[K, T]) nextPortion(due []Candidate[K, T]) (some []Candidate[K, T], left int) {
	if s.spec.Namespace == nil {
		return due, 0
	}
	namespaceOf := func(c Candidate[K, T]) string { return s.spec.Namespace(c.Object) }
	due = fair.Turns(s.oldestFirst(due), namespaceOf, s.lastTurn)
	if s.portion == 0 || len(due) <= s.portion || s.deps.Plan != nil || !slices.ContainsFunc(due, func(c Candidate[K, T]) bool { return namespaceOf(c) != "" }) {
		return due, 0
	}
	s.untried = slices.ContainsFunc(due[s.portion:], func(c Candidate[K, T]) bool { return !s.hasFailed(c.Key) })
	return due[:s.portion], len(due) - s.portion
}

// hasFailed reports whether the last delete of a candidate failed.
func (s *Sweep[K, T]) hasFailed(key K) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.seen[key].tried.IsZero()
}

// endTurns has the next sweep begin behind the namespaces that have had their turn, of which there were so many, where this one does not come to all.
func (s *Sweep[K, T]) endTurns(due []Candidate[K, T], tried int) {
	if s.spec.Namespace != nil && tried > 0 && (s.left > 0 || tried < len(due)) {
		s.lastTurn = s.spec.Namespace(due[tried-1].Object)
	}
}

// oldestFirst orders candidates by the time since which they wait.
func (s *Sweep[K, T]) oldestFirst(due []Candidate[K, T]) []Candidate[K, T] {
	since := make(map[K]time.Time, len(due))
	s.mu.Lock()
	for _, c := range due {
		since[c.Key] = s.seen[c.Key].waits()
	}
	s.mu.Unlock()
	return slices.SortedStableFunc(slices.Values(due), func(a, b Candidate[K, T]) int { return since[a.Key].Compare(since[b.Key]) })
}

// pauseBeforeRest is the longest time before the sweep that deletes what one has left. What failed would fail again at once, and where all that is left
// has failed before, the pause after failures holds.
func (s *Sweep[K, T]) pauseBeforeRest(err error, next time.Duration) time.Duration {
	switch {
	case s.left == 0:
		return next
	case err == nil || isLimited(err):
		return 0
	case s.untried:
		return min(next, time.Second)
	}
	return next
}

// tally is what became of candidates since the last line in the log.
type tally struct {
	count map[Outcome]int
	begun time.Time // of the last line
}

// logEvery is the time between lines in the log about sweeps that leave something to the next.
const logEvery = time.Minute

// logDeleted logs what was deleted: of sweeps that leave something to the next, one line in a minute.
func (s *Sweep[K, T]) logDeleted(count map[Outcome]int) {
	if s.tally.count == nil {
		s.tally.count = map[Outcome]int{}
	}
	for o, n := range count {
		s.tally.count[o] += n
	}
	if s.left > 0 && s.deps.Plan.Now().Sub(s.tally.begun) < logEvery {
		return
	}
	s.logTally()
}

// logTally logs what has no line yet.
func (s *Sweep[K, T]) logTally() {
	all := s.tally.count
	s.tally = tally{begun: s.deps.Plan.Now()}
	if all[Deleted] > 0 {
		s.deps.Log.Info("deleted garbage", "rule", s.spec.Rule, "deleted", all[Deleted],
			"changed", all[Changed], "spared", all[Spared], "failed", all[Failed])
	}
}
