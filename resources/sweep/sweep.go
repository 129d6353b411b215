// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package sweep

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"github.com/skep-operator/skep/resources/dryrun"
	"github.com/skep-operator/skep/resources/internal/inflight"
	"github.com/skep-operator/skep/resources/internal/workers"
	"github.com/skep-operator/skep/resources/k8s"
	"github.com/skep-operator/skep/resources/panics"
	"github.com/skep-operator/skep/runtime/health"
	"github.com/skep-operator/skep/runtime/job"
)

// Sweep deletes candidates, sweep by sweep. Kick, FirstSeen and Reset are safe for
// concurrent use, before and while it runs; it runs once.
//
//   - The first sweep is at the start. The next is an interval after the end of
//     the one before, or as soon as a candidate that waits for its grace has
//     waited long enough.
//   - After a failed sweep the next comes after 1 s, 2 s, 3 s and so on, at most
//     after the interval.
//   - Namespaces have their deletes by turns. Where more is due than a sweep deletes,
//     the next sweep begins at its end, or a second later if something failed.
//   - A delete that fails does not keep others from being made, unless the API server
//     asks for a pause, or the role lacks the permission: then the sweep ends, and the
//     next one keeps the pause.
//   - A delete that takes long shows in health while it does.
//   - A candidate whose handling panics fails alone, and is due again with the next
//     sweep. A batch that panics is halved.
type Sweep[K comparable, T any] struct {
	spec        Spec[K, T]
	deps        Deps
	metrics     moduleMetrics
	rule        string
	health      health.Reporter
	kick        chan struct{}
	failed      error           // of the last sweep
	terminating map[string]bool // objects that the last scan found to wait for their finalizers

	attempts *inflight.Tracker
	panics   *panics.Rule

	portion  int    // the most deletes of a sweep, 0 for any number
	lastTurn string // the namespace of the last delete of a sweep that left some, or ended before its time
	left     int    // deletes that the last sweep left to the next
	untried  bool   // some of these have not failed before
	tally    tally  // of sweeps that are not logged yet

	mu       sync.Mutex
	seen     sightings[K]
	planned  dryRunState[K]
	panicked map[string]error // of objects, in the sweep under way
}

// New returns a sweep that does not run.
func New[K comparable, T any](s Deps, spec Spec[K, T]) *Sweep[K, T] {
	portion := 0
	if spec.Rate == nil {
		spec.Rate = rate.NewLimiter(20, 1)
		if spec.Namespace != nil && spec.Interval > 0 {
			portion = usualPortion
		}
	}
	if spec.Interval == 0 {
		spec.Confirmations, spec.Grace = 1, 0
	} else {
		spec.Confirmations = max(2, spec.Confirmations)
	}
	if s.metrics == nil {
		s.metrics = newMetrics()
	}
	sweep := &Sweep[K, T]{
		spec: spec, deps: s, metrics: s.metrics.forModule(s.Module.ID), rule: s.Module.ID + " " + spec.Rule,
		health: s.Health.Child("sweep-" + strings.ReplaceAll(spec.Rule, " ", "-")),
		kick:   make(chan struct{}, 1), seen: sightings[K]{}, panicked: map[string]error{}, portion: portion,
	}
	sweep.attempts = inflight.New(sweep.health, s.Log, sweep.rule)
	sweep.panics = s.ruleOf(sweep.rule)
	s.Plan.Observe(sweep.load)
	return sweep
}

// Kick requests a sweep before its time: at once, or a grace after the end of the
// last one.
func (s *Sweep[K, T]) Kick() {
	select {
	case s.kick <- struct{}{}:
	default:
	}
}

// dropKick drops the request that the sweep about to start serves.
func (s *Sweep[K, T]) dropKick() {
	select {
	case <-s.kick:
	default:
	}
}

// Reset has the candidates that match start anew: a sweep that is under way does
// not delete them.
func (s *Sweep[K, T]) Reset(match func(K) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	maps.DeleteFunc(s.seen, func(k K, _ sighting) bool { return match(k) })
}

// FirstSeen returns the time of the first of the scans in a row that found a
// candidate. ok is false if the last scan did not find it, or if it was reset
// since. What a scan finds counts when the scan has returned.
func (s *Sweep[K, T]) FirstSeen(key K) (first time.Time, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	seen, ok := s.seen[key]
	return seen.first, ok
}

// Job runs the sweep.
func (s *Sweep[K, T]) Job() job.Job { return job.OneShot(s.Run) }

// Run sweeps until ctx ends, or until the single sweep has succeeded. What does not
// return when ctx ends is left behind, and named.
func (s *Sweep[K, T]) Run(ctx context.Context) (err error) {
	var result error
	err = workers.Run(ctx, workers.Grace, workers.Worker{
		Run: func(ctx context.Context) { result = s.run(ctx) },
		Doing: func() string {
			if oldest := s.attempts.Oldest(); oldest != nil {
				return fmt.Sprintf("%s, %v", s.rule, oldest)
			}
			return s.rule
		},
	})
	if err != nil {
		return err
	}
	return result
}

func (s *Sweep[K, T]) run(ctx context.Context) error {
	defer s.metrics.reset()
	defer s.logTally()
	worker := s.deps.Plan.Begin(s.rule)
	defer worker.End()
	for failures := 0; ; {
		s.dropKick()
		s.beginDryRun()
		s.panicked = map[string]error{}
		nextDue, err := s.sweep(ctx)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		next := k8s.Hold{Pause: s.spec.Interval}
		switch {
		case err == nil && s.spec.Interval == 0 && len(s.panicked) > 0:
			failures++
			next.Pause = failurePause(failures, s.spec.Interval)
		case err == nil:
			failures = 0
			next.Pause = nextPause(s.spec.Interval, s.deps.Plan.Now(), nextDue)
		case isLimited(err): // waits for people, or for a better view
			failures = 0
		default:
			failures++
			next = k8s.HoldOf(err, failurePause(failures, s.spec.Interval), s.deps.Plan.Now())
		}
		if !endsSweep(next) {
			next.Pause = s.pauseBeforeRest(err, next.Pause)
		}
		s.report(next, err)
		s.endDryRun(err)
		if err == nil && s.spec.Interval == 0 && len(s.panicked) == 0 {
			return nil
		}
		if !s.wait(ctx, worker, next) {
			return ctx.Err()
		}
	}
}

// wait sleeps until the next sweep is due or requested. A request does not shorten
// a pause that the API server requires.
func (s *Sweep[K, T]) wait(ctx context.Context, worker *dryrun.Worker, next k8s.Hold) bool {
	ended := s.deps.Plan.Now()
	due := worker.NewTimer(next.Pause, s.needed)
	defer due.Stop()
	wanted := s.kick
	if endsSweep(next) {
		wanted = nil
	}
	for {
		select {
		case <-ctx.Done():
			return false
		case <-due.C:
			return true
		case <-next.Granted:
			return true
		case <-wanted:
			wanted = nil
			s.requestDryRun()
			due.Reset(min(next.Pause, s.spec.Grace) - s.deps.Plan.Now().Sub(ended))
		}
	}
}

// endsSweep reports whether a failed delete ends its sweep: others would fail alike.
func endsSweep(h k8s.Hold) bool { return h.Cause == k8s.Throttled || h.Cause == k8s.NotPermitted }

// sweep makes one sweep. nextDue is when the grace of the next candidate ends.
func (s *Sweep[K, T]) sweep(ctx context.Context) (nextDue time.Time, err error) {
	began := s.deps.Plan.Now()
	s.left, s.untried = 0, false
	result := runFailed
	var outcomes map[Outcome]int
	defer func() {
		took := s.deps.Plan.Now().Sub(began)
		if ctx.Err() == nil {
			s.metrics.recordRun(result, took)
		}
		if s.spec.Ended != nil {
			s.spec.Ended(Result{outcomes, took, cmp.Or(ctx.Err(), err)})
		}
	}()
	found, err := s.spec.Scan(ctx)
	if err != nil {
		return time.Time{}, fmt.Errorf("nothing is deleted, the view is not complete: %w", err)
	}
	candidates, terminating := splitTerminating(found.Candidates)
	s.logTerminating(terminating)
	s.mu.Lock()
	seen, due, nextDue := updateSightings(s.seen, candidates, began, thresholds{s.spec.Confirmations, s.spec.Grace})
	s.seen = seen
	s.mu.Unlock()
	defer s.countWaiting()
	if due, err = s.confirm(ctx, due); err != nil {
		return nextDue, err
	}
	due, limit := s.limit(due, found.Total)
	due, s.left = s.nextPortion(due)
	if outcomes, err = s.deleteAll(ctx, due); err != nil {
		return nextDue, err
	}
	if limit != nil {
		result = runLimited
		return nextDue, limit
	}
	result = runSucceeded
	return nextDue, nil
}

// logTerminating logs objects that are deleted and wait for their finalizers,
// each when a scan finds it first.
func (s *Sweep[K, T]) logTerminating(found []Candidate[K, T]) {
	before := s.terminating
	s.terminating = make(map[string]bool, len(found))
	for _, c := range found {
		t := s.spec.Trigger(c.Object)
		t.ResourceVersion = ""
		name := t.String()
		if s.terminating[name] = true; !before[name] {
			s.deps.Log.Info("waiting for finalizers", "rule", s.spec.Rule, "object", name)
		}
	}
	s.metrics.terminating(len(s.terminating))
}

func waitingText(leaving map[string]bool) string {
	if len(leaving) == 0 {
		return ""
	}
	first := slices.Min(slices.Collect(maps.Keys(leaving)))
	if len(leaving) > 1 {
		first += " first"
	}
	return fmt.Sprintf("%d deleted, waiting for finalizers: %s", len(leaving), first)
}

// confirm returns the candidates that are found again in stores that are up to date.
func (s *Sweep[K, T]) confirm(ctx context.Context, due []Candidate[K, T]) ([]Candidate[K, T], error) {
	if s.spec.Confirm == nil || len(due) == 0 {
		return due, nil
	}
	if err := s.spec.Confirm(ctx); err != nil {
		return nil, fmt.Errorf("nothing is deleted, it is not sure that the view is up to date: %w", err)
	}
	again, err := s.spec.Scan(ctx)
	if err != nil {
		return nil, fmt.Errorf("nothing is deleted, the view is not complete: %w", err)
	}
	kept := intersect(due, again.Candidates)
	s.dropStale(due, kept)
	return kept, nil
}

// dropStale drops those that are due no more.
func (s *Sweep[K, T]) dropStale(due, kept []Candidate[K, T]) {
	stays := make(map[K]bool, len(kept))
	for _, c := range kept {
		stays[c.Key] = true
	}
	for _, c := range due {
		if !stays[c.Key] {
			s.markProcessed(c)
			s.recordOutcome(c, Spared)
		}
	}
}

// deleteAll deletes what is due. Its error is those of all deletes that failed.
func (s *Sweep[K, T]) deleteAll(ctx context.Context, due []Candidate[K, T]) (map[Outcome]int, error) {
	var mu sync.Mutex
	var errs []error
	var ended atomic.Bool
	count, begun, tried := map[Outcome]int{}, 0, 0
	parallelize(s.spec.Workers, func(yield func(func()) bool) {
		for batch := range slices.Chunk(due, max(1, s.spec.Batch)) {
			begun += len(batch)
			end := begun
			next := s.awaitRate(ctx, len(batch)) == nil && yield(func() {
				if ended.Load() {
					return
				}
				outcomes, err := s.deleteSome(ctx, batch)
				mu.Lock()
				defer mu.Unlock()
				tried = max(tried, end)
				for _, o := range outcomes {
					count[o]++
				}
				switch {
				case err == nil:
				case endsSweep(k8s.HoldOf(err, 0, time.Time{})): // the pause that the API server asks for is that of all errors
					errs = slices.Insert(errs, 0, err)
					ended.Store(true)
				default:
					errs = append(errs, err)
				}
			})
			if !next || ended.Load() {
				return
			}
		}
	})
	s.endTurns(due, tried)
	s.logDeleted(count)
	return count, joinErrors(errs)
}

// deleteSome deletes the candidates of a batch that are still due: those that were reset have no outcome.
func (s *Sweep[K, T]) deleteSome(ctx context.Context, batch []Candidate[K, T]) (outcomes []Outcome, err error) {
	if s.spec.DeleteBatch != nil {
		return s.deleteHalves(ctx, batch)
	}
	for _, c := range batch {
		o, ok, err := s.deleteOne(ctx, c)
		if ok {
			outcomes = append(outcomes, o)
		}
		if err != nil {
			return outcomes, err
		}
	}
	return outcomes, nil
}

// deleteBatch deletes candidates with one request.
func (s *Sweep[K, T]) deleteBatch(ctx context.Context, batch []Candidate[K, T]) (outcomes []Outcome, err error) {
	batch = slices.DeleteFunc(slices.Clone(batch), func(c Candidate[K, T]) bool {
		_, seen := s.FirstSeen(c.Key)
		return !seen
	})
	if len(batch) == 0 {
		return nil, nil
	}
	s.markProcessed(batch...)
	cause := &k8s.Cause{Rule: s.rule}
	objects := make([]T, len(batch))
	for i, c := range batch {
		objects[i], cause.Triggers = c.Object, append(cause.Triggers, s.spec.Trigger(c.Object))
	}
	if outcomes, err = s.spec.DeleteBatch(k8s.WithCause(ctx, cause), objects); err != nil {
		err = fmt.Errorf("deleting %s and %d more: %w", cause.Triggers[0], len(batch)-1, err)
	}
	if err != nil && ctx.Err() != nil {
		err = nil // the term has ended
	}
	for i := len(outcomes); i < len(batch) && err != nil; i++ {
		outcomes = append(outcomes, Failed)
	}
	for i, o := range outcomes {
		s.recordOutcome(batch[i], o)
	}
	return outcomes, err
}

// deleteOne deletes a candidate that is still due. One that was reset has no
// outcome, nor has any after the end of the term.
func (s *Sweep[K, T]) deleteOne(ctx context.Context, c Candidate[K, T]) (o Outcome, ok bool, err error) {
	if _, seen := s.FirstSeen(c.Key); !seen {
		return "", false, nil
	}
	s.markProcessed(c)
	err = s.isolate(named[T]{c.Object, s.spec.Trigger}, func() (err error) { o, err = s.deleteCandidate(ctx, c); return err })
	if err != nil && ctx.Err() != nil {
		return "", false, nil
	}
	if isPanic(err) {
		o, err = Failed, nil // it is reported with the sweep, which has not failed for others
	}
	s.recordOutcome(c, o)
	return o, true, err
}

// deleteCandidate checks a candidate and deletes it.
func (s *Sweep[K, T]) deleteCandidate(ctx context.Context, c Candidate[K, T]) (Outcome, error) {
	t := s.spec.Trigger(c.Object)
	ctx = k8s.WithCause(ctx, &k8s.Cause{Rule: s.rule, Triggers: []k8s.Trigger{t}})
	if s.spec.Check != nil {
		garbage, err := s.spec.Check(ctx, c.Object)
		if err != nil {
			return Failed, fmt.Errorf("finding out whether %s is needed: %w", t, err)
		}
		if !garbage {
			return Spared, nil
		}
	}
	outcome, err := s.spec.Delete(ctx, c.Object)
	if err != nil {
		return Failed, fmt.Errorf("deleting %s: %w", t, err)
	}
	s.deps.Log.Debug("swept", "rule", s.spec.Rule, "object", t.String(), "why", c.Why, "outcome", outcome)
	return outcome, nil
}

// recordOutcome counts a candidate. One that failed stays due.
func (s *Sweep[K, T]) recordOutcome(c Candidate[K, T], o Outcome) {
	s.metrics.countObject(o)
	now := s.deps.Plan.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	if o != Failed {
		delete(s.seen, c.Key)
	} else if seen, is := s.seen[c.Key]; is {
		seen.tried = now
		s.seen[c.Key] = seen
	}
}

func (s *Sweep[K, T]) countWaiting() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.metrics.waiting(len(s.seen))
}
