// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

// Command kvstore measures the duties of the key-value store: an operator as a process,
// a real API server and a real etcd, beside etcd's own client on the same etcd. See
// ../README.md.
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
		fmt.Fprintln(os.Stderr, "bench kvstore:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	flags := flag.NewFlagSet("kvstore", flag.ContinueOnError)
	flags.SetOutput(stderr)
	var b cluster.KVBench
	flags.IntVar(&b.Services, "services", 10_000, "global Services to export, each with an EndpointSlice")
	flags.IntVar(&b.Nodes, "nodes", 5_000, "CiliumNodes to write")
	flags.IntVar(&b.Identities, "identities", 50_000, "identities in etcd, every other one unused; 65,000 at most")
	flags.IntVar(&b.OutageKeys, "outage-keys", 50_000, "keys during the outage")
	flags.StringVar(&b.OutageOf, "outage-of", "nodes", "what the keys of the outage are made of: nodes or services")
	flags.IntVar(&b.MeshServices, "mesh-services", 1_000, "global Services that each remote cluster has, too")
	flags.IntVar(&b.Clusters, "clusters", 10, "remote clusters with an etcd of their own")
	flags.IntVar(&b.Derived, "derived", 2_000, "exported Services whose derived Services one operator leaves to another")
	flags.IntVar(&b.Churn, "churn", 1_000, "objects that change while etcd is down")
	flags.DurationVar(&b.Down, "down", 30*time.Second, "how long etcd is down")
	flags.IntVar(&b.QPS, "qps", 100_000, "the operator's etcd.qps; its default is 20")
	flags.IntVar(&b.Rounds, "rounds", 20, "changes of one object; the figures are medians")
	flags.StringVar(&b.Operator, "operator", "../../bin/operator", "the operator to measure")
	more := flags.String("args", "", "more arguments of the operator, separated by spaces")
	only := flags.String("only", "", "measure only these scenarios, separated by commas: "+strings.Join(cluster.KVScenarios(), ", "))
	format := flags.String("o", "markdown", "format of the report: text, markdown or json")
	if err := flags.Parse(args); err != nil {
		return err
	}
	write := report.Formats[*format]
	if write == nil {
		return fmt.Errorf("-o %s: there is no such format", *format)
	}
	b.Args = strings.Fields(*more)
	began := time.Now()
	b.Progress = func(what string) { fmt.Fprintf(stderr, "%4.0f s  %s\n", time.Since(began).Seconds(), what) }
	var scenarios []string
	if *only != "" {
		scenarios = strings.Split(*only, ",")
	}
	if err := b.Check(scenarios); err != nil {
		return err
	}
	machine := report.ThisMachine()
	results, failure := b.Run(ctx, scenarios...)
	machine.Done()
	method := fmt.Sprintf("One run of each scenario; changes of one object are medians of %d. etcd does not sync to disk. The operator has etcd.qps %d.", b.Rounds, b.QPS)
	if err := write(stdout, report.Report{Machine: machine, Rounds: b.Rounds, Method: method, Results: results}); err != nil {
		return err
	}
	if failure == nil && contest.Worst(results) == contest.Red {
		return errors.New("a budget is exceeded more than twice")
	}
	return failure
}
