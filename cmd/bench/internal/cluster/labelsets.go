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

// The names of what is measured of identities.
const (
	setsAtStart = "every label set that was there has its identity, after the start"

	burst        = "1,000 new label sets at once → identities"
	burstMade    = "of that, until the last pod was there"
	burstDefault = "the same 1,000 with the default limits (for the record)"

	steady50   = "pod → identity at 200 new label sets/s, p50"
	steady99   = "pod → identity at 200 new label sets/s, p99"
	echo50     = "pod → an object that the bench makes for it, p50"
	echo99     = "pod → an object that the bench makes for it, p99"
	steadyRate = "pods that there were a second"
	steadyCPU  = "CPU of the operator for each"

	relabelTook       = "namespace of 5,000 pods and 50 label sets labelled → identities"
	relabelWrites     = "its writes"
	relabelDuplicates = "its duplicates"

	setsHeap       = "live heap after all of this"
	setsDuplicates = "duplicates of all of this"
)

// setWork is how much is done to identities.
type setWork struct {
	burst        int
	perSecond    float64
	seconds      int
	relabelled   int // pods
	relabelledOf int // label sets
	burstSpread  int // namespaces
	relabelPause time.Duration
}

func (b Bench) setWork() setWork {
	w := setWork{burst: 1000, perSecond: 200, seconds: 60, relabelled: 5000, relabelledOf: 50, burstSpread: 10, relabelPause: 2 * time.Second}
	if b.Quick {
		w.seconds, w.relabelled = 10, 500
	}
	return w
}

func (b Bench) labelSetsContest() contest.Contest {
	return contest.Contest{
		Name: "identities", Title: "Identities on a cluster of size " + b.Size,
		Note: "1,000 at once are written straight into etcd; all other pods are made through the API server, by 32 clients at once. " +
			"All times are between events of watches of the bench: a pod's, a namespace's, and that of the CiliumIdentity with exactly its labels. " +
			"For every tenth of the pods at 200/s the bench makes an object when its watch shows the pod: how long that takes is what the API server takes in this minute. " +
			"Medians of the rounds for 1,000 at once and for the namespace; one round of the others. " +
			"The recorded p99 is at 40 label sets a second.",
		Measures: []contest.Measure{
			{Name: setsAtStart, Unit: "s"},
			{Name: burst, Unit: "s", Budget: b.upToM(2)},
			{Name: burstMade, Unit: "s"},
			{Name: steady50, Unit: "ms"},
			{Name: steady99, Unit: "ms", Budget: b.upToM(100)},
			{Name: echo50, Unit: "ms"},
			{Name: echo99, Unit: "ms"},
			{Name: steadyRate, Unit: "/s"},
			{Name: steadyCPU, Unit: "ms"},
			{Name: relabelTook, Unit: "s"},
			{Name: relabelWrites, Budget: contest.Budget{AtMost: float64(b.setWork().relabelledOf)}},
			{Name: relabelDuplicates, Budget: contest.Budget{Nothing: true}},
			{Name: setsDuplicates, Budget: contest.Budget{Nothing: true}},
			{Name: setsHeap, Unit: "MB"},
			{Name: burstDefault, Unit: "s"},
		},
		Contestants: contestants,
	}
}

var recordedLabelSets = contest.Figures{burst: 15, steady99: 2400}

// labelSets measures how fast pods get their identities.
func (b Bench) labelSets(ctx context.Context, record func(contest.Figures)) error {
	return b.onPlane(ctx, b.load(), func(ctx context.Context, p *plane) error {
		s, err := b.newSets(ctx, p, record)
		if err != nil {
			return err
		}
		defer func() { s.operator.end(syscall.SIGKILL) }()
		for _, step := range []func(context.Context) error{s.start, s.bursts, s.steady, s.relabels, s.sum, s.defaults} {
			if err := step(ctx); err != nil {
				return err
			}
		}
		return nil
	})
}

// sets is work on identities in progress.
type sets struct {
	Bench
	work     setWork
	plane    *plane
	pods     *pods
	all      *identities
	operator *operator
	made     []string // label sets
	record   func(contest.Figures)
}

func (b Bench) newSets(ctx context.Context, p *plane, record func(contest.Figures)) (*sets, error) {
	s := &sets{Bench: b, work: b.setWork(), plane: p, record: record}
	var err error
	if s.all, err = p.watchIdentities(ctx); err != nil {
		return nil, err
	}
	if s.pods, err = p.watchPods(ctx); err != nil {
		return nil, err
	}
	for i := range s.work.burstSpread {
		if err := s.pods.makeNamespace(ctx, fmt.Sprint("bench-", i)); err != nil {
			return nil, err
		}
	}
	s.operator, err = b.run(ctx, p, "operator-0", slices.Concat(raised, duties)...)
	return s, err
}

// start waits until what was there is served: identities and slices.
func (s *sets) start(ctx context.Context) error {
	s.Progress("giving every label set its identity")
	last, err := s.all.made.count(ctx, s.size().labelSets)
	if err != nil {
		return err
	}
	s.record(contest.Figures{setsAtStart: last.Sub(s.operator.began).Seconds()})
	slices, err := s.plane.watchSlices(ctx)
	if err != nil {
		return err
	}
	_, err = slices.appeared.count(ctx, s.size().pods)
	return err
}

func (s *sets) bursts(ctx context.Context) error {
	for round := range s.Rounds {
		s.Progress(fmt.Sprintf("%s, %d of %d", burst, round+1, s.Rounds))
		figures, err := s.burst(ctx, fmt.Sprint("burst-", round))
		if err != nil {
			return err
		}
		s.record(figures)
		if err := sleep(ctx, time.Second); err != nil {
			return err
		}
	}
	return nil
}

// newPods plans pods with a label set each.
func (s *sets) newPods(name string, n int) []pod {
	all := make([]pod, n)
	for i := range all {
		app := fmt.Sprintf("%s-%d", name, i)
		all[i] = s.pods.plan(fmt.Sprint("bench-", i%s.work.burstSpread), app, app)
	}
	return all
}

// make makes pods through the API server; see wait.
func (s *sets) make(ctx context.Context, perSecond float64, all []pod) (pods, identities map[string]time.Time, err error) {
	if err := s.pods.make(ctx, perSecond, all); err != nil {
		return nil, nil, err
	}
	return s.wait(ctx, all)
}

// wait returns when pods were there, and when their identities were, both by
// label set.
func (s *sets) wait(ctx context.Context, all []pod) (pods, identities map[string]time.Time, err error) {
	keys, of, distinct := make([]string, len(all)), make([]string, len(all)), []string{}
	known := map[string]bool{}
	for i, pod := range all {
		keys[i], of[i] = pod.key(), pod.set
		if !known[pod.set] {
			known[pod.set] = true
			distinct = append(distinct, pod.set)
		}
	}
	s.made = append(s.made, distinct...)
	byKey, err := s.pods.made.wait(ctx, keys)
	if err != nil {
		return nil, nil, fmt.Errorf("pods: %w", err)
	}
	pods = map[string]time.Time{}
	for i, key := range keys {
		if at, ok := pods[of[i]]; !ok || byKey[key].Before(at) {
			pods[of[i]] = byKey[key]
		}
	}
	identities, err = s.all.made.wait(ctx, distinct)
	if err != nil {
		return nil, nil, fmt.Errorf("identities: %w", err)
	}
	return pods, identities, nil
}

func (s *sets) burst(ctx context.Context, name string) (contest.Figures, error) {
	all := s.newPods(name, s.work.burst)
	if err := s.pods.atOnce(ctx, all); err != nil {
		return nil, err
	}
	pods, identities, err := s.wait(ctx, all)
	if err != nil {
		return nil, err
	}
	first := earliest(pods)
	return contest.Figures{
		burst:     latest(identities).Sub(first).Seconds(),
		burstMade: latest(pods).Sub(first).Seconds(),
	}, nil
}

// steady makes pods of new label sets at a pace, and does beside the operator the least that it has to do.
func (s *sets) steady(ctx context.Context) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop() // the echoes
	s.Progress(fmt.Sprintf("%v new label sets a second for %d s", s.work.perSecond, s.work.seconds))
	all := s.newPods("steady", int(s.work.perSecond)*s.work.seconds)
	echoed := everyTenth(all)
	echoes, err := s.plane.echo(ctx, echoed)
	if err != nil {
		return err
	}
	before, err := s.operator.cpu()
	if err != nil {
		return err
	}
	pods, identities, err := s.make(ctx, s.work.perSecond, all)
	if err != nil {
		return err
	}
	after, err := s.operator.cpu()
	if err != nil {
		return err
	}
	took := delays(pods, identities)
	beside, err := echoes.delays(ctx, s.pods, echoed)
	if err != nil {
		return err
	}
	s.record(contest.Figures{
		steady50: 1000 * percentile(took, .5), steady99: 1000 * percentile(took, .99), steadyRate: rate(pods),
		echo50: 1000 * percentile(beside, .5), echo99: 1000 * percentile(beside, .99),
		steadyCPU: 1000 * (after - before) / float64(len(pods)),
	})
	return nil
}

// relabels labels a namespace with many pods of few label sets.
func (s *sets) relabels(ctx context.Context) error {
	const namespace = "bench-relabelled"
	s.Progress(fmt.Sprintf("making %d pods in a namespace", s.work.relabelled))
	if err := s.pods.makeNamespace(ctx, namespace); err != nil {
		return err
	}
	plan := func() []pod {
		all := make([]pod, s.work.relabelled)
		for i := range all {
			all[i] = s.pods.plan(namespace, fmt.Sprint("pod-", i), fmt.Sprint("app-", i%s.work.relabelledOf))
		}
		return all
	}
	if _, _, err := s.make(ctx, 0, plan()); err != nil {
		return err
	}
	labelled, err := s.plane.watchLabel(ctx, namespace, "round")
	if err != nil {
		return err
	}
	for round := range s.Rounds {
		value := fmt.Sprint("r", round)
		s.Progress(fmt.Sprintf("labelling it, %d of %d", round+1, s.Rounds))
		began := time.Now()
		if err := s.pods.relabel(ctx, namespace, "round", value); err != nil {
			return err
		}
		var of []string // the first pods have all the label sets
		for _, pod := range plan()[:s.work.relabelledOf] {
			of = append(of, pod.set)
		}
		if err := s.relabelled(ctx, began, labelled, value, of); err != nil {
			return err
		}
	}
	return nil
}

func (s *sets) relabelled(ctx context.Context, began time.Time, labelled *sightings[string], value string, of []string) error {
	s.made = append(s.made, of...)
	cause, err := labelled.wait(ctx, []string{value})
	if err != nil {
		return fmt.Errorf("the namespace's label: %w", err)
	}
	identities, err := s.all.made.wait(ctx, of)
	if err != nil {
		return fmt.Errorf("identities: %w", err)
	}
	if err := sleep(ctx, s.work.relabelPause); err != nil { // whatever else it writes
		return err
	}
	requests, err := s.plane.requests(s.operator.user, began)
	s.record(contest.Figures{
		relabelTook:       latest(identities).Sub(cause[value]).Seconds(),
		relabelWrites:     float64(mutating(requests, ciliumIdentities)),
		relabelDuplicates: float64(s.all.duplicates(of)),
	})
	return err
}

func (s *sets) sum(ctx context.Context) error {
	heap, _, _, err := s.operator.memory(ctx)
	if err != nil {
		return err
	}
	err = s.operator.profile(ctx, s.Profiles)
	s.record(contest.Figures{setsHeap: heap, setsDuplicates: float64(s.all.duplicates(s.made))})
	return err
}

// defaults measures what the default limits of requests leave of it.
func (s *sets) defaults(ctx context.Context) error {
	s.Progress("default limits: " + burst)
	s.operator.end(syscall.SIGTERM)
	var err error
	if s.operator, err = s.run(ctx, s.plane, "operator-defaults", duties...); err != nil {
		return err
	}
	if _, _, err := s.make(ctx, 0, s.newPods("serves", 1)); err != nil {
		return err
	}
	figures, err := s.burst(ctx, "burst-defaults")
	s.record(contest.Figures{burstDefault: figures[burst]})
	return err
}
