// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package sweep

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"strings"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/skep-operator/skep/resources/k8s"
	"github.com/skep-operator/skep/resources/plan"
	"github.com/skep-operator/skep/runtime/health"
	"github.com/skep-operator/skep/runtime/job"
)

// Sweep deletes candidates, sweep by sweep. Soon, Since and Forget are safe for
// concurrent use, before and while it runs; it runs once.
//
//   - The first sweep is at the start. The next is an interval after the end of
//     the one before, or as soon as a candidate that waits for its grace has
//     waited long enough.
//   - After a failed sweep the next comes after 1 s, 2 s, 3 s and so on, at most
//     after the interval.
//   - A delete that fails does not keep others from being made.
type Sweep[K comparable, T any] struct {
	spec    Spec[K, T]
	scope   Scope
	metrics moduleMetrics
	rule    string
	health  health.Reporter
	soon    chan struct{}
	failed  error // of the last sweep

	mu      sync.Mutex
	seen    sightings[K]
	planned planned[K]
}

// New returns a sweep that does not run.
func New[K comparable, T any](s Scope, spec Spec[K, T]) *Sweep[K, T] {
	if spec.Rate == nil {
		spec.Rate = rate.NewLimiter(20, 1)
	}
	if spec.Interval == 0 {
		spec.Sightings, spec.Grace = 1, 0
	} else {
		spec.Sightings = max(2, spec.Sightings)
	}
	if s.metrics == nil {
		s.metrics = newMetrics()
	}
	sweep := &Sweep[K, T]{
		spec: spec, scope: s, metrics: s.metrics.of(s.Module.ID), rule: s.Module.ID + " " + spec.Rule,
		health: s.Health.Part("sweep-" + strings.ReplaceAll(spec.Rule, " ", "-")),
		soon:   make(chan struct{}, 1), seen: sightings[K]{},
	}
	s.Plan.Observe(sweep.load)
	return sweep
}

// Soon asks for a sweep before its time: at once, or a grace after the end of the
// last one.
func (s *Sweep[K, T]) Soon() {
	select {
	case s.soon <- struct{}{}:
	default:
	}
}

// answerSoon forgets the request that the sweep about to start answers.
func (s *Sweep[K, T]) answerSoon() {
	select {
	case <-s.soon:
	default:
	}
}

// Forget vouches for candidates: those that match start anew, and are not deleted
// by a sweep that is under way.
func (s *Sweep[K, T]) Forget(match func(K) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	maps.DeleteFunc(s.seen, func(k K, _ sighting) bool { return match(k) })
}

// Since returns when the first of the scans in a row that found a candidate was
// made. ok is false if the last scan did not find it, or if somebody has vouched
// for it since. What a scan finds counts when the scan has returned.
func (s *Sweep[K, T]) Since(key K) (first time.Time, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	seen, ok := s.seen[key]
	return seen.first, ok
}

// Job runs the sweep.
func (s *Sweep[K, T]) Job() job.Job { return job.OneShot(s.Run) }

// Run sweeps until ctx ends, or until the single sweep has succeeded.
func (s *Sweep[K, T]) Run(ctx context.Context) error {
	defer s.metrics.rest()
	worker := s.scope.Plan.Begin(s.rule)
	defer worker.End()
	for failures := 0; ; {
		s.answerSoon()
		s.beginPlanned()
		ripens, err := s.sweep(ctx)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		next := s.spec.Interval
		switch {
		case err == nil:
			failures = 0
			next = pause(s.spec.Interval, s.scope.Plan.Now(), ripens)
		case isBrake(err): // waits for people, or for a better view
			failures = 0
		default:
			failures++
			next = pauseAfter(failures, s.spec.Interval)
		}
		s.report(next, err)
		s.endPlanned(err)
		if err == nil && s.spec.Interval == 0 {
			return nil
		}
		if !s.wait(ctx, worker, next) {
			return ctx.Err()
		}
	}
}

// wait sleeps until the next sweep is due or wanted soon.
func (s *Sweep[K, T]) wait(ctx context.Context, worker *plan.Worker, pause time.Duration) bool {
	ended := s.scope.Plan.Now()
	due := worker.NewTimer(pause, s.needed)
	defer due.Stop()
	wanted := s.soon
	for {
		select {
		case <-ctx.Done():
			return false
		case <-due.C:
			return true
		case <-wanted:
			wanted = nil
			s.wantPlanned()
			due.Reset(min(pause, s.spec.Grace) - s.scope.Plan.Now().Sub(ended))
		}
	}
}

// sweep makes one sweep. ripens is when the next candidate will have waited long
// enough.
func (s *Sweep[K, T]) sweep(ctx context.Context) (ripens time.Time, err error) {
	began := s.scope.Plan.Now()
	result := runFailed
	var outcomes map[Outcome]int
	defer func() {
		took := s.scope.Plan.Now().Sub(began)
		if ctx.Err() == nil {
			s.metrics.ran(result, took)
		}
		if s.spec.Ended != nil {
			s.spec.Ended(Result{outcomes, took, cmp.Or(ctx.Err(), err)})
		}
	}()
	found, err := s.spec.Scan(ctx)
	if err != nil {
		return time.Time{}, fmt.Errorf("nothing is deleted, the view is not complete: %w", err)
	}
	s.mu.Lock()
	seen, due, ripens := look(s.seen, found.Candidates, began, patience{s.spec.Sightings, s.spec.Grace})
	s.seen = seen
	s.mu.Unlock()
	defer s.tellWaiting()
	if due, err = s.confirmed(ctx, due); err != nil {
		return ripens, err
	}
	if !s.spec.Everything && implausible(len(due), found.Total, s.scope.MaxShare) {
		result = runBraked
		s.judgePlanned(due...)
		return ripens, &brakedError{len(due), found.Total}
	}
	if outcomes, err = s.deleteAll(ctx, due); err != nil {
		return ripens, err
	}
	result = runSucceeded
	return ripens, nil
}

// brakedError is a sweep that would have deleted too much.
type brakedError struct{ due, total int }

func (e *brakedError) Error() string {
	return fmt.Sprintf("%d of %d objects look like garbage, which is hard to believe: nothing is deleted; if it is right, set --%s to 1 until they are gone", e.due, e.total, maxShareFlag)
}

func isBrake(err error) bool {
	_, ok := err.(*brakedError)
	return ok
}

// confirmed are the candidates that are found in a view that is up to date, too.
func (s *Sweep[K, T]) confirmed(ctx context.Context, due []Candidate[K, T]) ([]Candidate[K, T], error) {
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
	kept := still(due, again.Candidates)
	s.spare(due, kept)
	return kept, nil
}

// spare forgets those that are due no more.
func (s *Sweep[K, T]) spare(due, kept []Candidate[K, T]) {
	stays := make(map[K]bool, len(kept))
	for _, c := range kept {
		stays[c.Key] = true
	}
	for _, c := range due {
		if !stays[c.Key] {
			s.judgePlanned(c)
			s.settle(c, Spared)
		}
	}
}

// deleteAll deletes what is due. Its error is those of all deletes that failed.
func (s *Sweep[K, T]) deleteAll(ctx context.Context, due []Candidate[K, T]) (map[Outcome]int, error) {
	var mu sync.Mutex
	var errs []error
	count := map[Outcome]int{}
	sideBySide(s.spec.Workers, func(yield func(func()) bool) {
		for _, c := range due {
			next := s.awaitRate(ctx) == nil && yield(func() {
				outcome, told, err := s.deleteOne(ctx, c)
				if !told {
					return
				}
				mu.Lock()
				defer mu.Unlock()
				count[outcome]++
				if err != nil {
					errs = append(errs, err)
				}
			})
			if !next {
				return // told to stop
			}
		}
	})
	if count[Deleted] > 0 {
		s.scope.Log.Info("deleted what nobody needs any more", "rule", s.spec.Rule, "deleted", count[Deleted],
			"changed", count[Changed], "spared", count[Spared], "failed", count[Failed])
	}
	return count, summary(errs)
}

// deleteOne deletes a candidate that is still due. Nothing is told of one that
// somebody vouched for, or if the term is over.
func (s *Sweep[K, T]) deleteOne(ctx context.Context, c Candidate[K, T]) (o Outcome, told bool, err error) {
	if _, seen := s.Since(c.Key); !seen {
		return "", false, nil
	}
	s.judgePlanned(c)
	o, err = s.dispose(ctx, c)
	if err != nil && ctx.Err() != nil {
		return "", false, nil
	}
	s.settle(c, o)
	return o, true, err
}

// dispose asks about a candidate and deletes it.
func (s *Sweep[K, T]) dispose(ctx context.Context, c Candidate[K, T]) (Outcome, error) {
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
	s.scope.Log.Debug("swept", "rule", s.spec.Rule, "object", t.String(), "why", c.Why, "outcome", outcome)
	return outcome, nil
}

// settle notes what became of a candidate. One that failed stays due.
func (s *Sweep[K, T]) settle(c Candidate[K, T], o Outcome) {
	s.metrics.objects(o)
	if o == Failed {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.seen, c.Key)
}

func (s *Sweep[K, T]) tellWaiting() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.metrics.waiting(len(s.seen))
}

// told is how many errors of one sweep are told in full.
const told = 3

func summary(errs []error) error {
	if len(errs) <= told {
		return errors.Join(errs...)
	}
	return fmt.Errorf("%w\nand %d more", errors.Join(errs[:told]...), len(errs)-told)
}

// report tells health what came of a sweep, and the log when that is news: the
// first failure of several, and when the brake goes on.
func (s *Sweep[K, T]) report(next time.Duration, err error) {
	before := s.failed
	s.failed = err
	if err == nil {
		s.health.OK("")
		return
	}
	s.health.Degraded(fmt.Sprintf("next sweep in %s", next), err)
	level := slog.LevelDebug
	if (before == nil || isBrake(err) != isBrake(before)) && !errors.Is(err, k8s.ErrFenced) {
		level = slog.LevelWarn
	}
	s.scope.Log.Log(context.Background(), level, "sweep failed, there will be another", "rule", s.spec.Rule, "error", err)
	if isBrake(err) && !isBrake(before) {
		s.scope.Events.WarnOfDuty("SweepBraked", s.rule+": "+err.Error())
	}
}
