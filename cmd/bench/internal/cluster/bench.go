// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package cluster

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/skep-operator/skep/cmd/bench/internal/contest"
)

// Bench measures an operator on a control plane with a load.
type Bench struct {
	Size     string // S, M or L
	Rounds   int    // of what is cheap
	Quick    bool   // does less of what takes minutes
	Operator string // the binary
	Profiles string // directory for heap profiles, "" for none
	Progress func(string)

	env []string // of the operator, beside that of the bench
}

// size is that of a load.
type size struct{ pods, labelSets int }

// sizes are those of cmd/devcluster, but for the label sets of L: large clusters
// are large by their replicas.
var sizes = map[string]size{"S": {10_000, 1125}, "M": {16_000, 1800}, "L": {100_000, 3000}}

// upToM is a budget for memory or time. Those are of size M: L has none.
func (b Bench) upToM(most float64) contest.Budget {
	if b.Size == "L" {
		return contest.Budget{}
	}
	return contest.Budget{AtMost: most}
}

func (b Bench) size() size { return sizes[b.Size] }

// load is what a control plane begins with.
func (b Bench) load(more ...string) []string {
	return append([]string{"--load", b.Size, "--label-sets", fmt.Sprint(b.size().labelSets)}, more...)
}

const (
	ours     = "ours"
	original = "cilium-operator 1.17 (recorded)"
)

// The original cannot be run from here.
var contestants = []contest.Contestant{{Name: original}, {Name: ours, Judged: true}}

// raised are the limits of requests that cluster benches run with.
var raised = []string{"--operator-k8s-client-qps=1000", "--operator-k8s-client-burst=2000"}

// duties are flags that turn duties on which are off by default.
var duties = []string{
	"--identity-allocation-mode=crd", "--identity-management-mode=operator", "--enable-cilium-endpoint-slice", "--ces-slice-mode=fcfs",
}

// scenario is one thing to measure, on control planes of its own.
type scenario struct {
	contest  contest.Contest
	recorded contest.Figures // the original's at size M, on a machine like this one
	run      func(ctx context.Context, record func(contest.Figures)) error
}

func (b Bench) scenarios() []scenario {
	return []scenario{
		{b.operatorContest(), recordedOperator, b.operator},
		{b.labelSetsContest(), recordedLabelSets, b.labelSets},
		{b.batchingContest(), recordedBatching, b.batching},
		{b.servicesContest(), b.recordedServices(), b.services},
		{b.ingressesContest(), b.ingresses().recorded, b.measurePaths(b.ingresses())},
		{b.routesContest(), b.routes().recorded, b.measurePaths(b.routes())},
		{b.listenersContest(), nil, b.measurePaths(b.listeners())},
		{b.definitionsContest(), nil, b.definitions},
		{b.joiningContest(), nil, b.joining},
		{b.taintsContest(), nil, b.taints},
		{b.instancesContest(), nil, b.instances},
	}
}

// Scenarios are the names of what can be measured.
func Scenarios() (names []string) {
	for _, s := range (Bench{Size: "M"}).scenarios() {
		names = append(names, s.contest.Name)
	}
	return names
}

// Check says what is wrong with what is asked for.
func (b Bench) Check(only []string) error {
	if _, ok := sizes[b.Size]; !ok {
		return fmt.Errorf("there is no size %q: use S, M or L", b.Size)
	}
	if b.Rounds < 1 {
		return fmt.Errorf("%d rounds: at least 1 is needed", b.Rounds)
	}
	for _, name := range only {
		if !slices.Contains(Scenarios(), name) {
			return fmt.Errorf("there is no scenario %q: use %s", name, strings.Join(Scenarios(), ", "))
		}
	}
	return nil
}

// Run measures the named scenarios, or all. On an error the results so far come
// with it.
func (b Bench) Run(ctx context.Context, only ...string) (results []contest.Result, err error) {
	for _, s := range b.scenarios() {
		if len(only) > 0 && !slices.Contains(only, s.contest.Name) {
			continue
		}
		result := contest.Result{Contest: s.contest, Runs: map[string][]contest.Figures{original: {s.recorded}}}
		err := s.run(ctx, func(f contest.Figures) { result.Runs[ours] = append(result.Runs[ours], f) })
		if err == nil {
			err = complete(result)
		}
		results = append(results, result)
		if err != nil {
			return results, fmt.Errorf("%s: %w", s.contest.Name, err)
		}
	}
	return results, nil
}

// complete makes sure that nothing goes unjudged.
func complete(r contest.Result) error {
	for _, m := range r.Measures {
		if len(r.All(ours, m.Name)) == 0 {
			return fmt.Errorf("nothing has measured %q", m.Name)
		}
	}
	return nil
}

// onPlane does something on a control plane that begins with a load.
func (b Bench) onPlane(ctx context.Context, load []string, do func(context.Context, *plane) error) error {
	what := "starting an empty control plane"
	if len(load) > 0 {
		what = "starting a control plane with " + strings.Join(load, " ")
	}
	b.Progress(what)
	p, err := startPlane(ctx, load...)
	if err != nil {
		return err
	}
	defer p.stop()
	ctx, p.fail = context.WithCancelCause(ctx)
	defer p.fail(nil) // watches first
	return do(ctx, p)
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
