// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

// Command bench measures Skep beside its peers, against the budgets that it has
// set itself. See README.md.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"os/signal"
	"regexp"
	"slices"
	"strings"
	"syscall"

	"github.com/skep-operator/skep/cmd/bench/internal/contest"
	"github.com/skep-operator/skep/cmd/bench/internal/graph"
	"github.com/skep-operator/skep/cmd/bench/internal/report"
	"github.com/skep-operator/skep/cmd/bench/internal/streams"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	switch {
	case err == nil, errors.Is(err, flag.ErrHelp):
	case errors.Is(err, errRed):
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	default:
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(2)
	}
}

var errRed = errors.New("a budget is exceeded more than twice")

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	flags.SetOutput(stderr)
	rounds := flags.Int("rounds", 5, "rounds; the figures are medians")
	which := flags.String("run", ".", "run only contests whose names match this regular expression")
	format := flags.String("o", "text", "format of the report: "+strings.Join(slices.Sorted(maps.Keys(report.Formats)), ", "))
	pods := flags.Int("pods", streams.BudgetPods, "pods of the initial sync, which is judged at the default only")
	if err := flags.Parse(args); err != nil {
		return err
	}
	write := report.Formats[*format]
	switch {
	case flags.NArg() > 0:
		return fmt.Errorf("%s: bench takes no arguments", flags.Arg(0))
	case write == nil:
		return fmt.Errorf("-o %s: there is no such format", *format)
	case *rounds < 1 || *pods < 1:
		return errors.New("-rounds and -pods want at least 1")
	}
	all := []contest.Contest{graph.Contest(), streams.Sync(*pods), streams.Update(), streams.FanOut()}
	if isChild, err := contest.Child(ctx, all); isChild {
		return err
	}
	contests, err := matching(all, *which)
	if err != nil {
		return err
	}
	machine := report.ThisMachine()
	runner := contest.Runner{Rounds: *rounds, Args: args, Progress: func(what string) { fmt.Fprintln(stderr, what) }}
	results, failure := runner.Run(ctx, contests)
	machine.Done()
	if err := write(stdout, report.Report{Machine: machine, Rounds: *rounds, Results: results}); err != nil {
		return err
	}
	if failure == nil && contest.Worst(results) == contest.Red {
		return errRed
	}
	return failure
}

func matching(all []contest.Contest, pattern string) ([]contest.Contest, error) {
	re, err := regexp.Compile(pattern)
	if err != nil {
		return nil, fmt.Errorf("-run: %w", err)
	}
	chosen := slices.DeleteFunc(slices.Clone(all), func(c contest.Contest) bool { return !re.MatchString(c.Name) })
	if len(chosen) == 0 {
		names := make([]string, len(all))
		for i, c := range all {
			names[i] = c.Name
		}
		return nil, fmt.Errorf("-run %s matches none of %s", pattern, strings.Join(names, ", "))
	}
	return chosen, nil
}
