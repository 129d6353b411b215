// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package outside

import (
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// budgets are the rates of all servers. Doors of whatever module to the same server share one, across terms.
type budgets struct {
	mu       sync.Mutex
	byServer map[string]*budget
}

func newBudgets() *budgets { return &budgets{byServer: map[string]*budget{}} }

// of returns the budget of a server, which is made with the limits of the first door.
func (b *budgets) of(server string, l Limits) *budget {
	if b == nil {
		return newBudget(l)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.byServer[server] == nil {
		b.byServer[server] = newBudget(l)
	}
	return b.byServer[server]
}

// budget is the rate of the calls to a server, and the pause that it asks for.
type budget struct {
	limiter *rate.Limiter

	mu    sync.Mutex
	until time.Time
}

func newBudget(l Limits) *budget {
	return &budget{limiter: rate.NewLimiter(rate.Limit(l.QPS), l.Burst)}
}

func (b *budget) pausedUntil() time.Time {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.until
}

func (b *budget) pauseFor(d time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.until = time.Now().Add(d)
}
