// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package dryrun

import (
	"context"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/skep-operator/skep/runtime/health"
)

// Plan is a dry run. It is safe for concurrent use; a nil Plan is a real run.
type Plan struct {
	limit    time.Duration
	objects  *Objects
	degraded func() []health.Status // nil: unknown

	moves      atomic.Uint64
	generation atomic.Uint64

	mu      sync.Mutex
	began   time.Time
	ahead   time.Duration // how far simulated time is ahead of the beginning
	entered time.Duration // the same when the term was entered
	set     uint64        // timers so far
	timers  map[*Timer]struct{}
	workers map[*Worker]struct{}
	loads   []func() Load
	writes  []*Write
	known   map[identity]*Write // the first write of each identity
}

// New returns a plan that may take so long.
func New(limit time.Duration) *Plan {
	p := &Plan{
		limit: limit, began: time.Now().Truncate(time.Second),
		timers: map[*Timer]struct{}{}, workers: map[*Worker]struct{}{}, known: map[identity]*Write{},
	}
	p.objects = newObjects(p)
	return p
}

// Objects is the overlay of the Kubernetes API, nil in a real run.
func (p *Plan) Objects() *Objects {
	if p == nil {
		return nil
	}
	return p.objects
}

// Load is what a mechanism is at.
type Load struct {
	// Busy is what is under way or waits for its turn.
	Busy []string
	// Retrying is what failed and is tried again by the real clock, soon.
	Retrying []string
	// Failed is what failed, and waits for a retry: what follows from it is not planned.
	Failed []string
	// Waiting is what else the plan does not wait for, and tells at its end.
	Waiting []string
}

func (l *Load) add(other Load) {
	l.Busy = append(l.Busy, other.Busy...)
	l.Retrying = append(l.Retrying, other.Retrying...)
	l.Failed = append(l.Failed, other.Failed...)
	l.Waiting = append(l.Waiting, other.Waiting...)
}

// Observe has the plan ask a mechanism what it is at, until it has ended. load
// must not block.
func (p *Plan) Observe(load func() Load) {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.loads = append(p.loads, load)
}

// Moved says that something happened: the plan is not at rest at this moment.
func (p *Plan) Moved() {
	if p != nil {
		p.moves.Add(1)
	}
}

// Generation counts the planned changes, those that recur aside. What a
// mechanism found out before the last of them may not hold any more.
func (p *Plan) Generation() uint64 {
	if p == nil {
		return 0
	}
	return p.generation.Load()
}

// load is what all mechanisms are at, in a fixed order.
func (p *Plan) load() Load {
	p.mu.Lock()
	loads := slices.Clone(p.loads)
	var all Load
	for w := range p.workers {
		if !w.resting {
			all.Busy = append(all.Busy, w.who)
		}
	}
	p.mu.Unlock()
	for _, load := range loads {
		all.add(load())
	}
	all.add(p.objects.load())
	for _, list := range []*[]string{&all.Busy, &all.Retrying, &all.Failed, &all.Waiting} {
		slices.Sort(*list)
		*list = slices.Compact(*list)
	}
	return all
}

const (
	// pollInterval is the pause between two polls of the mechanisms. They are at
	// rest after two polls in a row that find none busy, with no move between.
	pollInterval = 50 * time.Millisecond
	// retryLimit is for how long the plan waits for retries by the real clock while
	// all else is at rest.
	retryLimit = 5 * time.Second
	// enterLimit is how far time jumps at once while the term is being entered:
	// what a start waits for comes soon.
	enterLimit = time.Second
)

// Make runs until the plan is stable, or its time is up. enter enters the term
// to be planned, and is called beside. The error is that of enter, or of ctx.
// The term has to be left by the caller.
func (p *Plan) Make(ctx context.Context, enter func(context.Context) error) (*Report, error) {
	limited, cancel := context.WithTimeout(ctx, p.limit)
	defer cancel()
	entered := make(chan error, 1)
	go func() {
		err := enter(limited)
		p.mu.Lock()
		p.entered = p.ahead
		p.mu.Unlock()
		entered <- err
	}()
	polls := time.NewTicker(pollInterval)
	defer polls.Stop()
	r := rest{plan: p}
	for inside := false; ; {
		select {
		case err := <-entered:
			if err != nil && limited.Err() == nil {
				return nil, err
			}
			inside, entered = err == nil, nil
		case <-limited.Done():
			if entered != nil {
				<-entered
			}
			if ctx.Err() != nil {
				return nil, context.Cause(ctx)
			}
			load := p.load()
			if !inside {
				load.Busy = append(load.Busy, "the term is being entered")
			}
			return p.report(load, false), nil
		case <-polls.C:
			load, quiet, atRest := r.poll()
			switch {
			case !inside && quiet: // what waits for the term to be entered is busy until then
				p.jump(enterLimit)
			case inside && atRest && !p.jump(math.MaxInt64):
				return p.report(load, true), nil
			}
		}
	}
}

// rest detects that everything is at rest.
type rest struct {
	plan  *Plan
	moves uint64
	still int       // polls in a row without a move
	idle  int       // of them in a row that found nothing busy
	since time.Time // when the first of these was
}

// poll reports whether nothing has moved since the last poll, and whether
// everything is at rest.
func (r *rest) poll() (load Load, quiet, atRest bool) {
	load = r.plan.load()
	if moves := r.plan.moves.Load(); moves != r.moves {
		r.moves, r.still, r.idle = moves, 0, 0
		return load, false, false
	}
	r.still++
	quiet = r.still > 1 && r.plan.objects.reads.Load() == 0
	if len(load.Busy) > 0 {
		r.idle = 0
		return load, quiet, false
	}
	if r.idle++; r.idle == 1 {
		r.since = time.Now()
	}
	return load, quiet, r.idle > 1 && (len(load.Retrying) == 0 || time.Since(r.since) > retryLimit)
}
