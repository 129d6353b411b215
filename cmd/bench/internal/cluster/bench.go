// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package cluster

import (
	"context"
	"fmt"
	"syscall"
	"time"

	"github.com/skep-operator/skep/cmd/bench/internal/contest"
)

// Bench measures an operator on a control plane with a load.
type Bench struct {
	Size     string // S, M or L
	Rounds   int    // hand-overs of each kind
	Operator string // the binary
	Progress func(string)
}

// The names of what is measured.
const (
	allServed    = "every node has its CIDR, after the start"
	allDefault   = "the same, with the default limits (for the record)"
	reads        = "reads per node"
	writes       = "writes per node"
	liveHeap     = "live heap of the leader"
	resident     = "resident, leader"
	peakResident = "resident at most, leader"
	standbyHeap  = "live heap of a standby"
	idleCPU      = "CPU of the idle leader"
	term         = "SIGTERM → the successor serves"
	termInitial  = "its requests for an initial state"
	kill         = "SIGKILL → the successor serves"
	restart      = "restart: mutating calls"
)

const (
	ours     = "ours"
	original = "cilium-operator 1.17 (recorded)"
)

// leaseDuration is the default, which a successor waits after a crash.
const leaseDuration = 15.0

func (b Bench) contest() contest.Contest {
	return contest.Contest{
		Name: "cluster", Title: "An operator on a cluster of size " + b.Size,
		Note: "A real API server and etcd on the same machine; raised limits unless said. The recorded figures are of size M, from another run.",
		Measures: []contest.Measure{
			{Name: liveHeap, Unit: "MB", Budget: contest.Budget{AtMost: 40}},
			{Name: resident, Unit: "MB", Budget: contest.Budget{AtMost: 120}},
			{Name: peakResident, Unit: "MB"},
			{Name: standbyHeap, Unit: "MB"},
			{Name: idleCPU, Unit: "ms/s"},
			{Name: allServed, Unit: "s"},
			{Name: allDefault, Unit: "s"},
			{Name: reads, Budget: contest.Budget{AtMost: 1}},
			{Name: writes, Budget: contest.Budget{AtMost: 1}},
			{Name: term, Unit: "s", Budget: contest.Budget{AtMost: 1}},
			{Name: termInitial},
			{Name: kill, Unit: "s", Budget: contest.Budget{AtMost: leaseDuration + .5}},
			{Name: restart},
		},
		Contestants: []contest.Contestant{{Name: original}, {Name: ours, Judged: true}},
	}
}

// recorded are figures of the original at size M, on a machine like this one:
// it cannot be run from here.
var recorded = contest.Figures{liveHeap: 140, resident: 450, term: 16, kill: 28, restart: 4000}

// Run measures.
func (b Bench) Run(ctx context.Context) (contest.Result, error) {
	result := contest.Result{Contest: b.contest(), Runs: map[string][]contest.Figures{original: {recorded}}}
	record := func(f contest.Figures) { result.Runs[ours] = append(result.Runs[ours], f) }
	if err := b.defaults(ctx, record); err != nil {
		return result, fmt.Errorf("with the default limits: %w", err)
	}
	return result, b.raised(ctx, record)
}

// defaults measures what the default limits of requests leave of it.
func (b Bench) defaults(ctx context.Context, record func(contest.Figures)) error {
	return b.onPlane(ctx, func(p *plane, n *nodes) error {
		b.Progress("default limits: giving every node its CIDR")
		o, err := b.run(ctx, p, "operator")
		if err != nil {
			return err
		}
		defer o.end(syscall.SIGKILL)
		last, _, err := n.served(ctx)
		record(contest.Figures{allDefault: last.Sub(o.began).Seconds()})
		return err
	})
}

func (b Bench) onPlane(ctx context.Context, do func(*plane, *nodes) error) error {
	b.Progress("starting a control plane of size " + b.Size)
	p, err := startPlane(ctx, b.Size)
	if err != nil {
		return err
	}
	defer p.stop()
	n, err := p.watchNodes(ctx)
	if err != nil {
		return err
	}
	defer n.stop()
	return do(p, n)
}

func (b Bench) raised(ctx context.Context, record func(contest.Figures)) error {
	return b.onPlane(ctx, func(p *plane, n *nodes) error {
		leader, err := b.serve(ctx, p, n, record)
		if err != nil {
			return err
		}
		pair := &pair{Bench: b, plane: p, nodes: n, leader: leader, record: record}
		defer pair.end()
		if err := pair.addStandby(ctx); err != nil {
			return err
		}
		if err := pair.idle(ctx); err != nil {
			return err
		}
		if err := pair.handOver(ctx, syscall.SIGTERM, term); err != nil {
			return err
		}
		if err := pair.handOver(ctx, syscall.SIGKILL, kill); err != nil {
			return err
		}
		return pair.restart(ctx)
	})
}

// serve starts the first operator, which has all the work to do.
func (b Bench) serve(ctx context.Context, p *plane, n *nodes, record func(contest.Figures)) (*operator, error) {
	b.Progress("giving every node its CIDR")
	o, err := b.run(ctx, p, "operator-0", raised...)
	if err != nil {
		return nil, err
	}
	last, count, err := n.served(ctx)
	if err != nil {
		return o, err
	}
	requests, err := p.requests(o.user, o.began)
	var got, put int
	for _, r := range requests {
		switch {
		case r.ObjectRef.Resource != ciliumNodes.Resource:
		case r.mutates():
			put++
		case !r.initial() && r.Verb != "watch":
			got++
		}
	}
	record(contest.Figures{
		allServed: last.Sub(o.began).Seconds(),
		reads:     float64(got) / float64(count), writes: float64(put) / float64(count),
	})
	return o, err
}

// pair is a leader and a standby.
type pair struct {
	Bench
	plane           *plane
	nodes           *nodes
	leader, standby *operator
	started         int
	record          func(contest.Figures)
}

func (p *pair) end() {
	for _, o := range []*operator{p.standby, p.leader} {
		if o != nil {
			o.end(syscall.SIGKILL)
		}
	}
}

func (p *pair) addStandby(ctx context.Context) (err error) {
	p.started++
	if p.standby, err = p.run(ctx, p.plane, fmt.Sprint("operator-", p.started), raised...); err != nil {
		return err
	}
	if err := p.standby.waits(ctx, false); err != nil {
		return err
	}
	return sleep(ctx, 2*time.Second) // its streams are warm by then
}

// idle measures a leader that has nothing to do, and its standby.
func (p *pair) idle(ctx context.Context) error {
	const period = 10 * time.Second
	p.Progress("idling")
	if err := sleep(ctx, period); err != nil { // what the work has left behind goes
		return err
	}
	before, err := p.leader.cpu()
	if err != nil {
		return err
	}
	if err := sleep(ctx, period); err != nil {
		return err
	}
	after, err := p.leader.cpu()
	if err != nil {
		return err
	}
	heap, rss, peak, err := p.leader.memory(ctx)
	if err != nil {
		return err
	}
	standby, _, _, err := p.standby.memory(ctx)
	p.record(contest.Figures{
		liveHeap: heap, resident: rss, peakResident: peak, standbyHeap: standby,
		idleCPU: 1000 * (after - before) / period.Seconds(),
	})
	return err
}

// handOver ends the leader and makes a node at that moment.
func (p *pair) handOver(ctx context.Context, s syscall.Signal, measure string) error {
	for round := range p.Rounds {
		p.Progress(fmt.Sprintf("%s, %d of %d", measure, round+1, p.Rounds))
		at := time.Now()
		if err := p.leader.cmd.Process.Signal(s); err != nil {
			return err
		}
		took, err := p.nodes.probe(ctx, fmt.Sprintf("probe-%d-%d", s, round))
		if err != nil {
			return err
		}
		figures := contest.Figures{measure: took.Seconds()}
		if s == syscall.SIGTERM {
			requests, err := p.plane.requests(p.standby.user, at)
			if err != nil {
				return err
			}
			initial := 0
			for _, r := range requests {
				if r.initial() {
					initial++
				}
			}
			figures[termInitial] = float64(initial)
		}
		p.record(figures)
		<-p.leader.ended
		p.leader = p.standby
		if err := p.addStandby(ctx); err != nil {
			return err
		}
	}
	return nil
}

// restart starts an operator where all is done.
func (p *pair) restart(ctx context.Context) error {
	p.Progress("restarting on the converged cluster")
	p.standby.end(syscall.SIGTERM)
	p.leader.end(syscall.SIGTERM)
	p.standby = nil
	var err error
	if p.leader, err = p.run(ctx, p.plane, "restarted", raised...); err != nil {
		return err
	}
	if _, err := p.nodes.probe(ctx, "probe-restart"); err != nil {
		return err
	}
	requests, err := p.plane.requests("restarted", p.leader.began)
	mutating := -1.0 // the probe's
	for _, r := range requests {
		if r.mutates() {
			mutating++
		}
	}
	p.record(contest.Figures{restart: mutating})
	return err
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
