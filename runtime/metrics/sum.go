// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package metrics

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"
)

// Sum has the sum of a number of each object in a gauge without labels. It is safe for concurrent use.
type Sum[K comparable] struct {
	gauge prometheus.Gauge

	mu  sync.Mutex
	of  map[K]int
	all int
}

// NewSum returns the sum of no object.
func NewSum[K comparable](gauge prometheus.Gauge) *Sum[K] {
	return &Sum[K]{gauge: gauge, of: map[K]int{}}
}

// Set replaces the number of an object. One whose number is 0 is not kept.
func (s *Sum[K]) Set(key K, n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all += n - s.of[key]
	if s.of[key] = n; n == 0 {
		delete(s.of, key)
	}
	s.gauge.Set(float64(s.all))
}
