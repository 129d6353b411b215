// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package cluster

import (
	"context"
	"fmt"
	"slices"
	"syscall"
	"time"

	"github.com/skep-operator/skep/cmd/bench/internal/contest"
)

// The names of what is measured of an operator with all its duties.
const (
	allServed     = "every node has its CIDR, after the start"
	allSliced     = "every endpoint is in a slice, after the start"
	allDefault    = "every node has its CIDR, with the default limits (for the record)"
	slicedDefault = "every endpoint is in a slice, with the default limits (for the record)"
	reads         = "reads per node"
	writes        = "writes per node"
	adopted       = "identities made, where all were there"
	liveHeap      = "live heap of the leader"
	resident      = "resident, idle leader"
	peakResident  = "resident at most, leader"
	standbyHeap   = "live heap of a standby"
	warm          = "start of a standby → all of its streams hold their state"
	warmCPU       = "its CPU until then"
	idleCPU       = "CPU of the idle leader"
	term          = "SIGTERM → the successor serves"
	termInitial   = "its requests for an initial state"
	kill          = "SIGKILL → the successor serves"
	restart       = "restart: mutating calls"
	restartSets   = "of these, on identities"
	restartSlices = "of these, on slices"
	restartPods   = "of these, on endpoints"
	restartServes = "start → a new label set has its identity, where all else is done"
	restartCPU    = "CPU of the operator until then"
)

// leaseDuration is the default, which a successor waits after a crash.
const leaseDuration = 15.0

func (b Bench) operatorContest() contest.Contest {
	nothing := contest.Budget{Nothing: true}
	c := contest.Contest{
		Name: "operator", Title: "An operator on a cluster of size " + b.Size,
		Note: fmt.Sprintf("%d pods of %d label sets. On are cluster-pool, garbage collection, identities by the operator and slices (fcfs). ", b.size().pods, b.size().labelSets) +
			"A real API server and etcd on the same machine; raised limits unless said. Medians of the rounds for hand-overs; one round of the others. " +
			"The recorded figures are of size M, from another run.",
		Measures: []contest.Measure{
			{Name: liveHeap, Unit: "MB", Budget: b.upToM(40)},
			{Name: resident, Unit: "MB", Budget: b.upToM(120)},
			{Name: peakResident, Unit: "MB"},
			{Name: standbyHeap, Unit: "MB"},
			{Name: warm, Unit: "s"},
			{Name: warmCPU, Unit: "s"},
			{Name: idleCPU, Unit: "ms/s"},
			{Name: allServed, Unit: "s"},
			{Name: allSliced, Unit: "s"},
			{Name: allDefault, Unit: "s"},
			{Name: slicedDefault, Unit: "s"},
			{Name: reads, Budget: contest.Budget{AtMost: 1}},
			{Name: writes, Budget: contest.Budget{AtMost: 1}},
			{Name: adopted, Budget: nothing},
			{Name: term, Unit: "s", Budget: b.upToM(1)},
			{Name: termInitial, Budget: nothing},
			{Name: kill, Unit: "s", Budget: b.upToM(leaseDuration + .5)},
			{Name: restart, Budget: nothing},
			{Name: restartSets, Budget: nothing},
			{Name: restartSlices, Budget: nothing},
			{Name: restartPods, Budget: nothing},
			{Name: restartServes, Unit: "s"},
			{Name: restartCPU, Unit: "s"},
		},
		Contestants: contestants,
	}
	if b.Quick {
		c.Measures = slices.DeleteFunc(c.Measures, func(m contest.Measure) bool { return m.Name == allDefault || m.Name == slicedDefault })
	}
	return c
}

var recordedOperator = contest.Figures{liveHeap: 140, resident: 450, term: 16, kill: 28, restart: 4000}

// operator measures one that has all its duties to do.
func (b Bench) operator(ctx context.Context, record func(contest.Figures)) error {
	if !b.Quick {
		if err := b.defaults(ctx, record); err != nil {
			return fmt.Errorf("with the default limits: %w", err)
		}
	}
	return b.raised(ctx, record)
}

// defaults measures what the default limits of requests leave of it.
func (b Bench) defaults(ctx context.Context, record func(contest.Figures)) error {
	return b.onPlane(ctx, b.load("--identities"), func(ctx context.Context, p *plane) error {
		s, err := b.serve(ctx, p, "operator", duties...)
		if err != nil {
			return err
		}
		defer s.operator.end(syscall.SIGKILL)
		record(contest.Figures{allDefault: s.nodesTook, slicedDefault: s.slicesTook})
		return nil
	})
}

// served is an operator that has done all work, and how many seconds after its
// start.
type served struct {
	operator              *operator
	nodes                 *nodes
	count                 int // nodes
	nodesTook, slicesTook float64
}

// serve starts an operator and waits until it has done all work.
func (b Bench) serve(ctx context.Context, p *plane, user string, args ...string) (s served, err error) {
	b.Progress("giving every node its CIDR, every endpoint its slice")
	if s.nodes, err = p.watchNodes(ctx); err != nil {
		return s, err
	}
	if s.operator, err = b.run(ctx, p, user, args...); err != nil {
		return s, err
	}
	defer func() {
		if err != nil {
			s.operator.end(syscall.SIGKILL)
		}
	}()
	slices, err := p.watchSlices(ctx)
	if err != nil {
		return s, err
	}
	last, count, err := s.nodes.served(ctx)
	if err != nil {
		return s, err
	}
	s.nodesTook, s.count = last.Sub(s.operator.began).Seconds(), count
	if last, err = slices.appeared.count(ctx, b.size().pods); err != nil {
		return s, fmt.Errorf("endpoints in slices: %w", err)
	}
	s.slicesTook = last.Sub(s.operator.began).Seconds()
	return s, nil
}

func (b Bench) raised(ctx context.Context, record func(contest.Figures)) error {
	return b.onPlane(ctx, b.load("--identities"), func(ctx context.Context, p *plane) error {
		s, err := b.serve(ctx, p, "operator-0", slices.Concat(raised, duties)...)
		if err != nil {
			return err
		}
		pair := &pair{Bench: b, plane: p, nodes: s.nodes, leader: s.operator, record: record}
		defer pair.end()
		if err := pair.served(s); err != nil {
			return err
		}
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

// served records what the first leader's work took.
func (p *pair) served(s served) error {
	requests, err := p.plane.requests(s.operator.user, s.operator.began)
	var got int
	for _, r := range requests {
		if r.about(ciliumNodes) && !r.mutates() && !r.initial() && r.Verb != "watch" {
			got++
		}
	}
	p.record(contest.Figures{
		allServed: s.nodesTook, allSliced: s.slicesTook,
		reads: float64(got) / float64(s.count), writes: float64(mutating(requests, ciliumNodes)) / float64(s.count),
		adopted: float64(mutating(requests, ciliumIdentities)),
	})
	return err
}

func (p *pair) addStandby(ctx context.Context) (err error) {
	p.started++
	if p.standby, err = p.run(ctx, p.plane, fmt.Sprint("operator-", p.started), slices.Concat(raised, duties)...); err != nil {
		return err
	}
	if err := p.standby.waits(ctx, false); err != nil {
		return err
	}
	if err := p.standby.ready(ctx); err != nil {
		return err
	}
	took := time.Since(p.standby.began)
	cpu, err := p.standby.cpu()
	p.record(contest.Figures{warm: took.Seconds(), warmCPU: cpu})
	return err
}

// collected is how long it takes at most until what the work has left behind is collected:
// there is a collection every two minutes at least. Before that, what is resident is what
// was so at most.
const collected = 150 * time.Second

// idle measures a leader that has nothing to do, and its standby.
func (p *pair) idle(ctx context.Context) error {
	const period = 10 * time.Second
	p.Progress("idling")
	if err := sleep(ctx, collected); err != nil {
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
	if err := p.leader.profile(ctx, p.Profiles); err != nil {
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
		if err := p.leader.signal(s); err != nil {
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

// restart starts an operator where all is done, and has each duty do one thing,
// to know that it has begun.
func (p *pair) restart(ctx context.Context) error {
	p.Progress("restarting on the converged cluster")
	p.standby.end(syscall.SIGTERM)
	p.leader.end(syscall.SIGTERM)
	p.standby = nil
	probes, err := p.probes(ctx)
	if err != nil {
		return err
	}
	if p.leader, err = p.run(ctx, p.plane, "restarted", slices.Concat(raised, duties)...); err != nil {
		return err
	}
	if err := probes.run(ctx, p.leader, p.record); err != nil {
		return err
	}
	requests, err := p.plane.requests(p.leader.user, p.leader.began)
	all := 0
	for _, r := range requests {
		if r.mutates() {
			all++
		}
	}
	const nodes, identities, slices = 1, 1, 1 // are the probes' own
	p.record(contest.Figures{
		restart:       float64(all - nodes - identities - slices),
		restartSets:   float64(mutating(requests, ciliumIdentities) - identities),
		restartSlices: float64(mutating(requests, ciliumEndpointSlices) - slices),
		restartPods:   float64(mutating(requests, ciliumEndpoints)),
	})
	return err
}

// probes are a node, a pod with a new label set and an endpoint.
type probes struct {
	nodes      *nodes
	pods       *pods
	identities *identities
	endpoints  *endpoints
	slices     *endpointSlices
}

func (p *pair) probes(ctx context.Context) (*probes, error) {
	r := &probes{nodes: p.nodes}
	var err error
	if r.pods, err = p.plane.watchPods(ctx); err != nil {
		return nil, err
	}
	if r.identities, err = p.plane.watchIdentities(ctx); err != nil {
		return nil, err
	}
	if r.slices, err = p.plane.watchSlices(ctx); err != nil {
		return nil, err
	}
	r.endpoints = &endpoints{plane: p.plane}
	return r, r.pods.makeNamespace(ctx, "bench-probe")
}

// run returns when each duty has served its probe, and some time later, for what
// else it does.
func (r *probes) run(ctx context.Context, o *operator, record func(contest.Figures)) error {
	probed := r.pods.plan("bench-probe", "probe", "probe")
	if err := r.pods.make(ctx, 0, []pod{probed}); err != nil {
		return err
	}
	identity, err := r.identities.made.wait(ctx, []string{probed.set})
	if err != nil {
		return fmt.Errorf("an identity: %w", err)
	}
	cpu, err := o.cpu()
	if err != nil {
		return err
	}
	record(contest.Figures{restartServes: identity[probed.set].Sub(o.began).Seconds(), restartCPU: cpu})
	if _, err := r.nodes.probe(ctx, "probe-restart"); err != nil {
		return fmt.Errorf("a node: %w", err)
	}
	made, err := r.pods.get(ctx, probed)
	if err != nil {
		return err
	}
	probe, err := endpointOf(made, r.pods.namespaces[probed.namespace], r.identities)
	if err != nil {
		return err
	}
	probe.ip, probe.node = slimIP(0), "192.168.0.1"
	if err := r.endpoints.make(ctx, 0, []endpoint{probe}); err != nil {
		return err
	}
	if _, err := r.slices.appeared.wait(ctx, []string{probe.key()}); err != nil {
		return fmt.Errorf("an endpoint in a slice: %w", err)
	}
	return sleep(ctx, 3*time.Second)
}
