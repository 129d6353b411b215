// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package sweep

import "time"

// sighting is what is remembered of a candidate between scans.
type sighting struct {
	first time.Time
	times int
	tried time.Time // when its last delete failed, zero if none did
}

// waits is the time since which a candidate waits for its turn.
func (s sighting) waits() time.Time {
	if s.tried.After(s.first) {
		return s.tried
	}
	return s.first
}

// sightings are the candidates of the last scan.
type sightings[K comparable] map[K]sighting

// thresholds is what it takes to be deleted.
type thresholds struct {
	sightings int
	grace     time.Duration
}

// updateSightings takes a scan into account: which candidates are due, and when the next one
// of the others will be if it is seen again, zero if there are no others or they
// wait for sightings alone. What was not found is forgotten.
func updateSightings[K comparable, T any](seen sightings[K], found []Candidate[K, T], now time.Time, p thresholds) (next sightings[K], due []Candidate[K, T], nextDue time.Time) {
	next = make(sightings[K], len(found))
	for _, c := range found {
		if _, twice := next[c.Key]; twice {
			continue
		}
		s, known := seen[c.Key]
		if !known {
			s.first = now
		}
		s.times++
		next[c.Key] = s
		ripe := s.first.Add(p.grace)
		switch {
		case c.Wait:
		case s.times >= p.sightings && !now.Before(ripe):
			due = append(due, c)
		case now.Before(ripe) && (nextDue.IsZero() || ripe.Before(nextDue)):
			nextDue = ripe
		}
	}
	return next, due, nextDue
}

// splitTerminating separates candidates that are deleted already from the others.
func splitTerminating[K comparable, T any](found []Candidate[K, T]) (candidates, terminating []Candidate[K, T]) {
	for _, c := range found {
		if c.Terminating {
			terminating = append(terminating, c)
		} else {
			candidates = append(candidates, c)
		}
	}
	return candidates, terminating
}

// intersect are those of the candidates that a second scan finds, too, as that has
// found them.
func intersect[K comparable, T any](due, again []Candidate[K, T]) []Candidate[K, T] {
	waited := make(map[K]bool, len(due))
	for _, c := range due {
		waited[c.Key] = true
	}
	var both []Candidate[K, T]
	for _, c := range again {
		if waited[c.Key] && !c.Wait && !c.Terminating {
			both = append(both, c)
			delete(waited, c.Key)
		}
	}
	return both
}

// nextPause is the time to the next sweep after one that ended well.
func nextPause(interval time.Duration, now, nextDue time.Time) time.Duration {
	if nextDue.IsZero() {
		return interval
	}
	return min(interval, max(0, nextDue.Sub(now)))
}

// failurePause is the time to the next sweep after so many failures in a row.
func failurePause(failures int, interval time.Duration) time.Duration {
	longest := interval
	if longest == 0 {
		longest = time.Minute
	}
	return min(time.Duration(failures)*time.Second, longest)
}
