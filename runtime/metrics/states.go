// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package metrics

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"
)

// States counts objects by their state, in a gauge whose only label is the state. It is safe for concurrent use.
type States[K comparable] struct {
	gauge *prometheus.GaugeVec
	names []string

	mu    sync.Mutex
	all   map[K]string
	count map[string]int
}

// NewStates returns the states of no object. The gauge has each of the names once an object is known.
func NewStates[K comparable](gauge *prometheus.GaugeVec, names ...string) *States[K] {
	return &States[K]{gauge: gauge, names: names, all: map[K]string{}, count: map[string]int{}}
}

// Get returns the state of an object, "" if it is not counted.
func (s *States[K]) Get(key K) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.all[key]
}

// Set counts an object, not any more with the state "".
func (s *States[K]) Set(key K, state string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	was := s.all[key]
	if was == state {
		return
	}
	if was != "" {
		s.count[was]--
	}
	delete(s.all, key)
	if state != "" {
		s.all[key] = state
		s.count[state]++
	}
	for _, name := range s.names {
		s.gauge.WithLabelValues(name).Set(float64(s.count[name]))
	}
}
