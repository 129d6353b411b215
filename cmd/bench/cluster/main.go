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
	"strings"
	"syscall"
	"time"

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
	rounds := flags.Int("rounds", 5, "rounds of what is cheap; the figures are medians")
	only := flags.String("only", "", "measure only these scenarios, separated by commas: "+strings.Join(cluster.Scenarios(), ", "))
	quick := flags.Bool("quick", false, "do less of what takes minutes")
	format := flags.String("o", "text", "format of the report: text, markdown or json")
	profiles := flags.String("profiles", "", "directory to save heap profiles of the operator in")
	operator := flags.String("operator", "../../bin/operator", "the operator to measure")
	if err := flags.Parse(args); err != nil {
		return err
	}
	write := report.Formats[*format]
	if write == nil {
		return fmt.Errorf("-o %s: there is no such format", *format)
	}
	var scenarios []string
	if *only != "" {
		scenarios = strings.Split(*only, ",")
	}
	began := time.Now()
	bench := cluster.Bench{Size: *size, Rounds: *rounds, Quick: *quick, Operator: *operator, Profiles: *profiles, Progress: func(what string) {
		fmt.Fprintf(stderr, "%4.0f s  %s\n", time.Since(began).Seconds(), what)
	}}
	if err := bench.Check(scenarios); err != nil {
		return err
	}
	machine := report.ThisMachine()
	results, failure := bench.Run(ctx, scenarios...)
	machine.Done()
	method := fmt.Sprintf("Medians of up to %d rounds, as each table says.", *rounds)
	if err := write(stdout, report.Report{Machine: machine, Rounds: *rounds, Method: method, Results: results}); err != nil {
		return err
	}
	if failure == nil && contest.Worst(results) == contest.Red {
		return errors.New("a budget is exceeded more than twice")
	}
	return failure
}
