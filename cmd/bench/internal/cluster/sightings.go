// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package cluster

import (
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"sync"
	"time"
)

// sightings are when things were first seen, by the clock of the bench. Safe for
// concurrent use.
type sightings[K comparable] struct {
	mu     sync.Mutex
	at     map[K]time.Time
	change chan struct{}
}

func newSightings[K comparable]() *sightings[K] {
	return &sightings[K]{at: map[K]time.Time{}, change: make(chan struct{})}
}

// record notes that things are seen now. Only the first time counts.
func (s *sightings[K]) record(at time.Time, things ...K) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, thing := range things {
		if _, known := s.at[thing]; !known {
			s.at[thing] = at
		}
	}
	close(s.change)
	s.change = make(chan struct{})
}

// forget makes the next time the first one.
func (s *sightings[K]) forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.at)
}

// patience is how long nothing at all may happen while something is waited for: as
// long as all pods of size L take to arrive on a machine with much else to do.
const patience = 15 * time.Minute

// wait returns when all things have been seen, and when that was.
func (s *sightings[K]) wait(ctx context.Context, things []K) (map[K]time.Time, error) {
	found := make(map[K]time.Time, len(things))
	err := s.until(ctx, func() bool {
		for _, thing := range things[len(found):] {
			at, ok := s.at[thing]
			if !ok {
				return false
			}
			found[thing] = at
		}
		return true
	})
	if err != nil {
		return nil, fmt.Errorf("%v and perhaps others of %d were not seen: %w", things[len(found)], len(things), err)
	}
	return found, nil
}

// count returns when so many things have been seen, and when the last one was.
func (s *sightings[K]) count(ctx context.Context, n int) (last time.Time, err error) {
	seen := 0
	err = s.until(ctx, func() bool {
		seen = len(s.at)
		if seen < n {
			return false
		}
		last = latest(s.at)
		return true
	})
	if err != nil {
		return last, fmt.Errorf("%d of %d were seen: %w", seen, n, err)
	}
	return last, nil
}

// until returns when something holds, which is asked with mu held.
func (s *sightings[K]) until(ctx context.Context, holds func() bool) error {
	for {
		s.mu.Lock()
		ok, change := holds(), s.change
		s.mu.Unlock()
		if ok {
			return nil
		}
		select {
		case <-change:
		case <-time.After(patience):
			return fmt.Errorf("nothing happened for %v", patience)
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func earliest[K comparable](at map[K]time.Time) time.Time {
	return slices.MinFunc(slices.Collect(maps.Values(at)), time.Time.Compare)
}

func latest[K comparable](at map[K]time.Time) time.Time {
	return slices.MaxFunc(slices.Collect(maps.Values(at)), time.Time.Compare)
}

// delays are how many seconds after their cause things were seen. Two watches
// may tell in another order than things happened: that is no delay.
func delays[K comparable](causes, effects map[K]time.Time) []float64 {
	all := make([]float64, 0, len(causes))
	for thing, at := range causes {
		all = append(all, max(0, effects[thing].Sub(at).Seconds()))
	}
	return all
}

// percentile is the least figure that so large a part of all do not exceed.
func percentile(all []float64, part float64) float64 {
	sorted := slices.Sorted(slices.Values(all))
	return sorted[max(0, int(math.Ceil(part*float64(len(sorted))))-1)]
}

// rate is how many things were seen a second.
func rate[K comparable](at map[K]time.Time) float64 {
	return float64(len(at)-1) / latest(at).Sub(earliest(at)).Seconds()
}
