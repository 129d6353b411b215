// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

// Package chance decides at which of many occasions a fault happens.
package chance

import (
	"errors"
	"hash/fnv"
	"math/rand/v2"
)

// Plan says at which occasions a fault happens. The zero value is: always.
type Plan struct {
	// Skip lets so many occasions pass first.
	Skip int
	// Every is the distance between two occasions that count; 0 and 1 are: all.
	Every int
	// Times bounds how often the fault happens; 0 is no bound.
	Times int
	// Probability of the fault at an occasion that counts; 0 is: certain.
	Probability float64
}

// Validate rejects a plan that has no meaning.
func (p Plan) Validate() error {
	if p.Skip < 0 || p.Every < 0 || p.Times < 0 || p.Probability < 0 || p.Probability > 1 {
		return errors.New("skip, every and times are at least 0, probability is between 0 and 1")
	}
	return nil
}

// IsAlways reports whether the fault happens at every occasion.
func (p Plan) IsAlways() bool { return p == Plan{} }

// Chance counts occasions. It is not safe for concurrent use.
type Chance struct {
	plan       Plan
	random     *rand.Rand
	seen, hits int
}

// New returns a Chance whose random sequence depends on a seed and an ID alone: what one
// draws does not depend on the others. The seed 0 is 1.
func New(plan Plan, seed uint64, id string) *Chance {
	h := fnv.New64a()
	h.Write([]byte(id))
	return &Chance{plan: plan, random: rand.New(rand.NewPCG(max(seed, 1), h.Sum64()))}
}

// Fires counts an occasion, and reports whether the fault happens.
func (c *Chance) Fires() bool {
	c.seen++
	nth := c.seen - c.plan.Skip - 1
	switch p := c.plan; {
	case nth < 0:
		return false
	case p.Every > 1 && nth%p.Every != 0:
		return false
	case p.Times > 0 && c.hits >= p.Times:
		return false
	case p.Probability > 0 && c.random.Float64() >= p.Probability:
		return false
	}
	c.hits++
	return true
}

// Hits is how often the fault has happened.
func (c *Chance) Hits() int { return c.hits }

// Random is the source of all that is random about the fault.
func (c *Chance) Random() *rand.Rand { return c.random }
