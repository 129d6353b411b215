// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package identity

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/skep-operator/skep/resources/domain/identity"
	"github.com/skep-operator/skep/resources/stream/slim"
	"github.com/skep-operator/skep/runtime/job"
)

// tendEvery is how often that is seen to which no event sets off.
const tendEvery = 5 * time.Second

// tend wakes numbers that have rested, makes sure that identities that were made
// are seen, and tells how full the range is.
func (m *maker) tend() job.Job {
	return job.OneShot(func(ctx context.Context) error {
		select {
		case <-m.complete:
		case <-ctx.Done():
			return ctx.Err()
		}
		view, err := m.Identities.Store(ctx)
		if err != nil {
			return err
		}
		level := &pressure{}
		for tick := time.NewTicker(tendEvery); ; {
			m.revise((*table).wake)
			m.confirm(func(n identity.Number, at slim.Revision) (there, isNew bool) {
				isNew = view.Revision() >= at // asked first: the view goes on meanwhile
				_, there = view.Get(slim.Key{Name: n.String()})
				return there, isNew
			})
			m.press(level)
			select {
			case <-tick.C:
			case <-ctx.Done():
				tick.Stop()
				return ctx.Err()
			}
		}
	}, job.Retry(time.Second, time.Minute))
}

// confirm has those identities made again that were made, and are gone without
// having been seen. shows reports whether a view that is as new as the revision
// has the identity; new is false for a view that is not.
func (m *maker) confirm(shows func(identity.Number, slim.Revision) (there, isNew bool)) {
	m.revise(func(t *table) {
		for number, revision := range t.unseen {
			if there, isNew := shows(number, revision); isNew && !there {
				t.forgetObject(number.String(), revision)
			}
		}
	})
}

// pressure is what was told about the range, which is told when it changes.
type pressure struct {
	passed int    // the highest threshold, in percent
	health string // "" for well
}

var thresholds = []int{50, 75, 90}

const (
	degradedFrom = 90
	slack        = 5 // what a share has to fall below a threshold to count as fallen
)

// rise takes note of the share of numbers in use, in percent. It reports whether
// that passed a threshold that was not passed before.
func (p *pressure) rise(percent int) bool {
	before, now := p.passed, 0
	for _, threshold := range thresholds {
		if percent >= threshold || before >= threshold && percent >= threshold-slack {
			now = threshold
		}
	}
	p.passed = now
	return now > before
}

// press tells how full the range is.
func (m *maker) press(told *pressure) {
	m.mu.Lock()
	n, starved := m.table.numbers, len(m.table.starved)
	percent := n.taken * 100 / n.in.Size()
	rises := told.rise(percent)
	var widest []spread
	if rises {
		widest = m.table.widest(3)
	}
	m.mu.Unlock()
	if rises {
		text := fmt.Sprintf("%d%% of the numbers for identities (%d to %d) are in use; the labels with the most values are %s. Pods with new labels do not start when there are none left: leave out labels that differ from pod to pod (option labels)",
			told.passed, n.in.Min, n.in.Max, describe(widest))
		m.Log.Warn(text)
		m.Events.WarnOfDuty("IdentitiesRunOut", text)
	}
	m.report(told, starved)
}

func (m *maker) report(told *pressure, starved int) {
	health := ""
	switch {
	case starved > 0:
		health = fmt.Sprintf("no number for an identity is free: %d sets of labels wait, and their pods do not start", starved)
	case told.passed >= degradedFrom:
		health = fmt.Sprintf("%d%% of the numbers for identities are in use", told.passed)
	}
	if health == told.health {
		return
	}
	told.health = health
	if part := m.Health.Part("numbers"); health != "" {
		part.Degraded(health, nil)
	} else {
		part.OK("")
	}
}

func describe(all []spread) string {
	texts := make([]string, len(all))
	for i, s := range all {
		texts[i] = fmt.Sprintf("%s (%d)", s.label, s.values)
	}
	return strings.Join(texts, ", ")
}
