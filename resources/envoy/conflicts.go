// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package envoy

import (
	"fmt"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/skep-operator/skep/resources/stream/slim"
	"github.com/skep-operator/skep/runtime/health"
	"github.com/skep-operator/skep/runtime/metrics"
)

// Conflicts are how much of what objects ask for is not served, since older objects of other namespaces, or components of the cluster, have it. A metric has
// the number, and a part of health, which is not degraded and not there without any. It is safe for concurrent use.
type Conflicts struct {
	sum    *metrics.Sum[slim.Key]
	part   health.Reporter
	format string

	mu    sync.Mutex
	of    map[slim.Key]conflict
	all   int
	first string
}

// conflict is that of one key.
type conflict struct {
	n  int
	at string
}

// NewConflicts returns those of a duty, of which there are none yet. The format of the text in health has the number, and the name of the first object.
func NewConflicts(gauge prometheus.Gauge, h health.Reporter, format string) *Conflicts {
	return &Conflicts{sum: metrics.NewSum[slim.Key](gauge), part: h.Child("conflicts"), format: format, of: map[slim.Key]conflict{}}
}

// Set replaces the number of a key, with the name of its first object.
func (c *Conflicts) Set(key slim.Key, n int, at string) {
	c.sum.Set(key, n)
	c.mu.Lock()
	defer c.mu.Unlock()
	if n == 0 {
		at = ""
	}
	was, now := c.of[key], conflict{n, at}
	if was == now {
		return
	}
	c.all += n - was.n
	if c.of[key] = now; n == 0 {
		delete(c.of, key)
	}
	switch {
	case n > 0 && (c.first == "" || at < c.first):
		c.first = at
	case was.at == c.first:
		c.first = ""
		for _, other := range c.of {
			if c.first == "" || other.at < c.first {
				c.first = other.at
			}
		}
	}
	if c.all == 0 {
		c.part.Remove()
		return
	}
	c.part.OK(fmt.Sprintf(c.format, c.all, c.first))
}
