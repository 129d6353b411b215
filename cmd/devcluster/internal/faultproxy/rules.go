// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package faultproxy

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/skep-operator/skep/cmd/devcluster/internal/chance"
	"github.com/skep-operator/skep/resources/clustertest/control"
)

// ruleSet holds a proxy's rules in the order of their arrival.
type ruleSet struct {
	seed uint64

	mu      sync.Mutex
	rules   []*rule
	count   int
	changed chan struct{} // closed and replaced when a rule comes or goes
}

func newRuleSet(seed uint64) *ruleSet {
	return &ruleSet{seed: seed, changed: make(chan struct{})}
}

// rule is a rule at work. Its counters are guarded by the set's lock.
type rule struct {
	control.Rule
	chance  *chance.Chance
	deck    []card // of spoilt answers, what is left of it
	added   time.Time
	removed chan struct{}
}

// fires counts a matching request and decides whether the rule applies to it.
func (r *rule) fires() bool {
	fires := r.chance.Fires()
	r.Hits = r.chance.Hits()
	return fires
}

func planOf(r control.Rule) chance.Plan {
	return chance.Plan{Skip: r.Skip, Every: r.Every, Times: r.Times, Probability: r.Probability}
}

func (s *ruleSet) add(ask control.Rule) (control.Rule, error) {
	if err := validateRule(ask); err != nil {
		return ask, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.count++
	if ask.ID == "" {
		ask.ID = "rule-" + strconv.Itoa(s.count)
	}
	if s.indexLocked(ask.ID) >= 0 {
		return ask, fmt.Errorf("there is a rule %q already: remove it first", ask.ID)
	}
	ask.Hits = 0
	s.rules = append(s.rules, &rule{
		Rule: ask, chance: chance.New(planOf(ask), s.seed, ask.ID), added: time.Now(), removed: make(chan struct{}),
	})
	s.changedLocked()
	return ask, nil
}

func (s *ruleSet) indexLocked(id string) int {
	return slices.IndexFunc(s.rules, func(r *rule) bool { return r.ID == id })
}

func (s *ruleSet) changedLocked() {
	close(s.changed)
	s.changed = make(chan struct{})
}

func (s *ruleSet) remove(id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := s.indexLocked(id)
	if i < 0 {
		return false
	}
	close(s.rules[i].removed)
	s.rules = slices.Delete(s.rules, i, i+1)
	s.changedLocked()
	return true
}

func (s *ruleSet) clear() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range s.rules {
		close(r.removed)
	}
	s.rules = nil
	s.changedLocked()
}

func (s *ruleSet) list() []control.Rule {
	s.mu.Lock()
	defer s.mu.Unlock()
	rules := make([]control.Rule, 0, len(s.rules))
	for _, r := range s.rules {
		rules = append(rules, r.Rule)
	}
	return rules
}

// decision is the decision of the rules on one request.
type decision struct {
	ids    []string
	delays []delay
	status *control.Status
	lose   *control.LoseAnswer
	spoil  *card
}

// delay is one rule's hold on one request.
type delay struct {
	time    time.Duration // < 0: until removed
	removed <-chan struct{}
}

// wait returns false if the client gave up first.
func (d delay) wait(ctx context.Context) bool {
	var timer <-chan time.Time
	if d.time >= 0 {
		timer = time.After(d.time)
	}
	select {
	case <-timer:
	case <-d.removed:
	case <-ctx.Done():
		return false
	}
	return true
}

func (s *ruleSet) decide(f facts) decision {
	s.mu.Lock()
	defer s.mu.Unlock()
	var v decision
	for _, r := range s.rules {
		if r.CutWatch != nil || r.HoldWatch != nil || !f.matches(r.Match) || !r.fires() {
			continue
		}
		v.ids = append(v.ids, r.ID)
		switch {
		case r.Delay != nil:
			v.delays = append(v.delays, delay{r.drawDelay(), r.removed})
		case r.Status != nil:
			v.status = r.Status
			return v
		case r.LoseAnswer != nil:
			v.lose = r.LoseAnswer
			return v
		case r.Spoil != nil:
			v.spoil = r.deal()
			return v
		}
	}
	return v
}

func (r *rule) drawDelay() time.Duration {
	if r.Delay.For < 0 {
		return -1
	}
	return r.Delay.For + r.drawUpTo(r.Delay.Jitter)
}

func (r *rule) drawUpTo(d time.Duration) time.Duration {
	return time.Duration(r.chance.Random().Float64() * float64(d))
}

// forWatch returns the rules that hold or cut a watch, and a channel that is
// closed when the answer is outdated.
func (s *ruleSet) forWatch(f facts) ([]*rule, <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var found []*rule
	for _, r := range s.rules {
		if (r.CutWatch != nil || r.HoldWatch != nil) && f.matches(r.Match) {
			found = append(found, r)
		}
	}
	return found, s.changed
}

// fire lets a rule that is due decide and count.
func (s *ruleSet) fire(r *rule) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return r.fires()
}

// cutAt draws when a rule cuts a watch that it has known since then.
func (s *ruleSet) cutAt(r *rule, since time.Time) time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r.added.After(since) {
		since = r.added
	}
	return since.Add(r.CutWatch.After + r.drawUpTo(r.CutWatch.Jitter))
}

func validateRule(r control.Rule) error {
	actions := 0
	for _, set := range []bool{r.Status != nil, r.Delay != nil, r.LoseAnswer != nil, r.Spoil != nil, r.CutWatch != nil, r.HoldWatch != nil} {
		if set {
			actions++
		}
	}
	switch {
	case actions != 1:
		return fmt.Errorf("a rule says exactly one of status, delay, loseAnswer, spoil, cutWatch and holdWatch, this one %d", actions)
	case r.Status != nil && (r.Status.Code < 400 || r.Status.Code > 599):
		return fmt.Errorf("status %d is no failure: use 400 to 599", r.Status.Code)
	case r.CutWatch != nil && (r.CutWatch.After < 0 || r.CutWatch.Jitter < 0):
		return errors.New("cutWatch: times must not be negative")
	case r.CutWatch != nil && r.CutWatch.After == 0 && r.Times == 0:
		return errors.New("cutWatch with after 0 would cut for ever: set after or times")
	case r.HoldWatch != nil && r.HoldWatch.For < 0:
		return errors.New("holdWatch: times must not be negative")
	case r.HoldWatch != nil && !planOf(r).IsAlways():
		return errors.New("holdWatch applies to every matching watch: skip, every, times and probability must not be set")
	case r.Spoil != nil:
		if err := validateSpoil(*r.Spoil); err != nil {
			return err
		}
	}
	if err := planOf(r).Validate(); err != nil {
		return err
	}
	return validateMatch(r.Match)
}
