// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package graph

import (
	"context"
	"fmt"
	"math"
	"runtime"

	"github.com/skep-operator/skep/cmd/bench/internal/contest"
	"github.com/skep-operator/skep/cmd/bench/internal/usage"
	"github.com/skep-operator/skep/testdata/benchcells"
)

const (
	budgetSize = 150 // modules, with 300 constructors: the size of the budgets
	small      = 100
	large      = 1000
)

var sizes = []int{10, small, budgetSize, 300, large}

const (
	growthCPU         = "growth from 100 to 1,000 modules, CPU"
	growthAllocations = "growth from 100 to 1,000 modules, allocations"
)

// Linear growth is 10 times. Allocations keep close to it; CPU time does not,
// since caches and collections do not grow with the graph: dig alone takes 12
// times as long.
const (
	growthBudgetAllocations = 12
	growthBudgetCPU         = 15
)

func cold(modules int) string        { return fmt.Sprintf("%d modules, first in its process, CPU", modules) }
func cpu(modules int) string         { return fmt.Sprintf("%d modules, CPU", modules) }
func allocations(modules int) string { return fmt.Sprintf("%d modules, allocations", modules) }

// Contest is the contest.
func Contest() contest.Contest {
	c := contest.Contest{
		Name:  "graph",
		Title: "Configure and build N modules with two constructors each",
		Note: "Flags, environment and defaults are read, decoded into a struct per module, and all constructors run; nothing is started. " +
			"The peers read configuration with viper and decode it with mapstructure, except for dig without configuration.",
		Measures: []contest.Measure{{Name: cold(budgetSize), Unit: "ms"}},
		Contestants: []contest.Contestant{
			{Name: "dig without configuration", Run: run(digBare, large)},
			{Name: "dig, flat", Run: run(digFlat, large)},
			{Name: "fx, flat", Run: run(fxFlat, large)},
			{Name: "fx, a module each", Run: run(fxModules, 300)}, // 1,000 take it a quarter of a minute
			{Name: "ours", Judged: true, Run: run(ours, large)},
		},
	}
	for _, n := range sizes {
		time, count := contest.Measure{Name: cpu(n), Unit: "ms"}, contest.Measure{Name: allocations(n)}
		if n == budgetSize {
			time.Budget.AtMost, count.Budget.AtMost = 5, 30_000
		}
		c.Measures = append(c.Measures, time, count)
	}
	c.Measures = append(c.Measures,
		contest.Measure{Name: growthCPU, Unit: "×", Budget: contest.Budget{AtMost: growthBudgetCPU}},
		contest.Measure{Name: growthAllocations, Unit: "×", Budget: contest.Budget{AtMost: growthBudgetAllocations}})
	return c
}

// builder configures and builds the graph of these modules.
type builder func([]benchcells.Unit) error

// run measures a builder at all sizes up to largest, the first build of its
// process apart.
func run(build builder, largest int) func(context.Context, string) (contest.Figures, error) {
	return func(context.Context, string) (contest.Figures, error) {
		units := benchcells.Units(large)
		first, err := one(build, units[:budgetSize])
		if err != nil {
			return nil, err
		}
		figures := contest.Figures{cold(budgetSize): first.CPU * 1e3}
		for _, n := range sizes {
			if n > largest {
				break
			}
			each, err := several(build, units[:n])
			if err != nil {
				return nil, err
			}
			figures[cpu(n)], figures[allocations(n)] = each.CPU*1e3, math.Round(each.Allocations)
		}
		if largest >= large {
			figures[growthCPU] = figures[cpu(large)] / figures[cpu(small)]
			figures[growthAllocations] = figures[allocations(large)] / figures[allocations(small)]
		}
		return figures, nil
	}
}

func one(build builder, units []benchcells.Unit) (usage.Since, error) {
	runtime.GC()
	begin, err := usage.Now()
	if err != nil {
		return usage.Since{}, err
	}
	if err := build(units); err != nil {
		return usage.Since{}, err
	}
	return begin.Since()
}

// several builds until enough CPU time has gone to be measured, and returns the
// mean of one build: its share of collections is in it.
func several(build builder, units []benchcells.Unit) (each usage.Since, err error) {
	const enough, fewest = .15, 3 // seconds, builds
	if _, err = one(build, units); err != nil {
		return each, err
	}
	runtime.GC()
	begin, err := usage.Now()
	if err != nil {
		return each, err
	}
	for builds := 1.; ; builds++ {
		if err := build(units); err != nil {
			return each, err
		}
		total, err := begin.Since()
		if err != nil {
			return each, err
		}
		if total.CPU >= enough && builds >= fewest {
			return usage.Since{CPU: total.CPU / builds, Allocations: total.Allocations / builds}, nil
		}
	}
}
