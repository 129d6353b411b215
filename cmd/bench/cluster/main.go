// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

// Command cluster measures the operator on a real control plane with a load, as
// people meet it: memory, time to serve, requests, hand-over. See ../README.md.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/skep-operator/skep/cmd/bench/internal/cluster"
	"github.com/skep-operator/skep/cmd/bench/internal/contest"
	"github.com/skep-operator/skep/cmd/bench/internal/report"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "bench cluster:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	flags := flag.NewFlagSet("cluster", flag.ContinueOnError)
	flags.SetOutput(stderr)
	size := flags.String("size", "M", "size of the load: S, M or L")
	rounds := flags.Int("rounds", 5, "hand-overs of each kind; the figures are medians")
	format := flags.String("o", "text", "format of the report: text, markdown or json")
	operator := flags.String("operator", "../../bin/operator", "the operator to measure")
	if err := flags.Parse(args); err != nil {
		return err
	}
	write := report.Formats[*format]
	if write == nil {
		return fmt.Errorf("-o %s: there is no such format", *format)
	}
	machine := report.ThisMachine()
	bench := cluster.Bench{Size: *size, Rounds: *rounds, Operator: *operator, Progress: func(what string) { fmt.Fprintln(stderr, what) }}
	result, err := bench.Run(ctx)
	if err != nil {
		return err
	}
	machine.Done()
	if err := write(stdout, report.Report{Machine: machine, Rounds: *rounds, Results: []contest.Result{result}}); err != nil {
		return err
	}
	if contest.Worst([]contest.Result{result}) == contest.Red {
		return errors.New("a budget is exceeded more than twice")
	}
	return nil
}
