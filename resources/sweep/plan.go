// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package sweep

import "time"

// sighting is what is remembered of a candidate between scans.
type sighting struct {
	first time.Time
	times int
}

// sightings are the candidates of the last scan.
type sightings[K comparable] map[K]sighting

// patience is what it takes to be deleted.
type patience struct {
	sightings int
	grace     time.Duration
}

// look takes a scan into account: which candidates are due, and when the next one
// of the others will be if it is seen again, zero if there are no others or they
// wait for sightings alone. What was not found is forgotten.
func look[K comparable, T any](seen sightings[K], found []Candidate[K, T], now time.Time, p patience) (next sightings[K], due []Candidate[K, T], ripens time.Time) {
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
		case now.Before(ripe) && (ripens.IsZero() || ripe.Before(ripens)):
			ripens = ripe
		}
	}
	return next, due, ripens
}

// still are those of the candidates that a second scan finds, too, as that has
// found them.
func still[K comparable, T any](due, again []Candidate[K, T]) []Candidate[K, T] {
	waited := make(map[K]bool, len(due))
	for _, c := range due {
		waited[c.Key] = true
	}
	var both []Candidate[K, T]
	for _, c := range again {
		if waited[c.Key] && !c.Wait {
			both = append(both, c)
			delete(waited, c.Key)
		}
	}
	return both
}

// few deletes are plausible whatever the share: of three objects, two may go.
const few = 10

// implausible reports whether so many deletes are more than is believed.
func implausible(due, total int, maxShare float64) bool {
	return due > few && float64(due) > maxShare*float64(total)
}

// pause is the time to the next sweep after one that ended well.
func pause(interval time.Duration, now, ripens time.Time) time.Duration {
	if ripens.IsZero() {
		return interval
	}
	return min(interval, max(0, ripens.Sub(now)))
}

// pauseAfter is the time to the next sweep after so many failures in a row.
func pauseAfter(failures int, interval time.Duration) time.Duration {
	longest := interval
	if longest == 0 {
		longest = time.Minute
	}
	return min(time.Duration(failures)*time.Second, longest)
}
