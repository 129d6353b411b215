// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package networkpolicy

import (
	"slices"

	"github.com/skep-operator/skep/resources/cluster/release"
	"github.com/skep-operator/skep/resources/domain/policy"
)

const (
	// MaxProblems is the most rules of a policy whose problems are reported. Others are counted.
	MaxProblems = 10

	// The most rules whose findings are kept, and the most bytes of their texts. What few agents have, as findings of an option, leaves no place
	// out for others: of rules whose findings hold for the same agents no more than MaxProblems are kept.
	maxKept  = 64
	maxTexts = 32 << 10
)

// problems are what is wrong with the rules of a list: the findings of some, and how many others have some, by the agents for which those hold.
// They have a bound, whatever the rules are.
type problems struct {
	kept []findings
	more []tally
}

// tally is how many rules have findings for the same agents.
type tally struct {
	of    pattern
	rules int
}

// pattern is the agents for which a rule has findings: for each release, in the order of release.All, those without these features.
type pattern [8]policy.Features

func (all findings) pattern() (p pattern) {
	for i, r := range release.All() {
		p[i] = all.of(r).Without()
	}
	return p
}

// holds reports whether there is a finding for agents of a release with these features.
func (p pattern) holds(on policy.Features, r release.Release) bool {
	return !on.HasAll(p[slices.Index(release.All(), r)])
}

// size is how many bytes the texts have.
func (all findings) size() (n int) {
	for _, in := range all {
		for _, f := range in.have {
			n += len(f.Text)
		}
	}
	return n
}

// collector makes the problems of a list, rule by rule.
type collector struct {
	problems
	size   int
	kept   map[pattern]int // the number of rules
	places map[pattern]int // in more
}

func newCollector() *collector {
	return &collector{kept: map[pattern]int{}, places: map[pattern]int{}}
}

// add adds the findings of the next rule.
func (c *collector) add(all findings) {
	if len(all) == 0 {
		return
	}
	of, size := all.pattern(), all.size()
	if c.kept[of] < MaxProblems && len(c.problems.kept) < maxKept && c.size+size <= maxTexts {
		c.kept[of]++
		c.size += size
		c.problems.kept = append(c.problems.kept, all)
		return
	}
	place, known := c.places[of]
	if !known {
		place = len(c.more)
		c.places[of] = place
		c.more = append(c.more, tally{of: of})
	}
	c.more[place].rules++
}

// counter has the first problems, and the number of others.
type counter struct {
	texts []string
	more  int
}

func (c *counter) add(text string) {
	switch {
	case text == "":
	case len(c.texts) < MaxProblems:
		c.texts = append(c.texts, text)
	default:
		c.more++
	}
}

// Problems are what is wrong with the rules of a policy for agents of a release: the first finding of each of the first rules, at most MaxProblems, in the
// order of the rules, and how many more rules are not valid.
func (p *Policy) Problems(on policy.Features, r release.Release) (texts []string, more int) {
	var found counter
	found.add(p.Spec.findings.of(r).First(on))
	for _, f := range p.Specs.kept {
		found.add(f.of(r).First(on))
	}
	for _, t := range p.Specs.problems.more {
		if t.of.holds(on, r) {
			found.more += t.rules
		}
	}
	return found.texts, found.more
}
