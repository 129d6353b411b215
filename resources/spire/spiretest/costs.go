// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package spiretest

import (
	"context"
	"sync"
	"time"
)

// CostAsSQLite has creations cost what they cost a server that keeps its entries in sqlite, and has some beside those that it lists. It makes one at a time, and
// each costs more the more there are. The costs are divided by scale, so that tests are short.
func (s *Server) CostAsSQLite(scale, others int) {
	s.costs = &costs{scale: time.Duration(scale), others: others}
}

// CostEach has each call that creates something cost d, however many there are at once and whatever it creates, as with a database that makes several changes at once.
func (s *Server) CostEach(d time.Duration) { s.costs = &costs{each: d} }

// measured are the costs of a call that creates fifty entries, by the number of entries that a server 1.14.4 has.
var measured = []struct {
	entries int
	cost    time.Duration
}{
	{0, 0}, {2_000, 160 * time.Millisecond}, {10_000, 680 * time.Millisecond}, {30_000, 1640 * time.Millisecond}, {50_000, 3020 * time.Millisecond},
}

// CostOf is what a call that creates fifty entries costs with CostAsSQLite, by the number of entries that there are, before it is scaled: it lies between what was measured, and
// beyond grows as it did last.
func CostOf(entries int) time.Duration {
	i := 1
	for i < len(measured)-1 && entries > measured[i].entries {
		i++
	}
	from, to := measured[i-1], measured[i]
	return from.cost + (to.cost-from.cost)*time.Duration(entries-from.entries)/time.Duration(to.entries-from.entries)
}

// costs are the costs of creations. nil is none.
type costs struct {
	each   time.Duration // of a call, 0: as sqlite
	scale  time.Duration
	others int

	mu   sync.Mutex
	free time.Time // when what was asked for is done
}

// begin is called before the first entry of a call.
func (c *costs) begin() {
	if c == nil {
		return
	}
	time.Sleep(c.each) // what is simulated is that time passes
	c.mu.Lock()
	defer c.mu.Unlock()
	if now := time.Now(); c.free.Before(now) {
		c.free = now
	}
}

// resolution is what is not slept for: sleeps are longer than they should be.
const resolution = time.Millisecond

// spend returns when one more entry is created, after all for which it was called before, or when ctx has ended. alone says that no other call waits.
func (c *costs) spend(ctx context.Context, entries int, alone bool) error {
	if c == nil || c.each > 0 {
		return ctx.Err()
	}
	rest := time.Until(c.reserve(entries, alone))
	if rest < resolution {
		return ctx.Err()
	}
	done := time.NewTimer(rest)
	defer done.Stop()
	select {
	case <-done.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// reserve is when one more entry will be created. Calls that wait for each other cost a quarter more. What a sleep was too long before is made up for.
func (c *costs) reserve(entries int, alone bool) time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	cost := CostOf(c.others+entries) / 50 / c.scale
	if !alone {
		cost += cost / 4
	}
	c.free = c.free.Add(cost)
	return c.free
}
