// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

// Demo runs the operator before your eyes: against a small cluster that it
// starts and fills itself, or against the one that KUBECONFIG names.
package main

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/skep-operator/skep/cmd/demo/internal/demo"
)

func main() {
	show := demo.Demo{Out: os.Stdout, Kubeconfig: os.Getenv("KUBECONFIG")}
	flag.StringVar(&show.Operator, "operator", "", "the operator's binary; by default bin/operator, or bin/operator-CLOUD")
	flag.StringVar(&show.Manifests, "manifests", "", "directory of what a cluster that the demo starts is filled with; by default testdata/demo, or testdata/demo/CLOUD")
	flag.StringVar(&show.Cloud, "cloud", "", "aws or azure for nodes in a simulated cloud")
	flag.StringVar(&show.CloudSim, "cloudsim", "bin/cloudsim", "the simulator's binary")
	build := flag.Bool("build", false, "only make sure that the control plane is built")
	flag.Parse()
	show.Args = flag.Args()
	operator, manifests := "bin/operator", "testdata/demo"
	if show.Cloud != "" {
		operator, manifests = operator+"-"+show.Cloud, manifests+"/"+show.Cloud
	}
	show.Operator, show.Manifests = cmp.Or(show.Operator, operator), cmp.Or(show.Manifests, manifests)

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	run := show.Run
	if *build {
		run = demo.Build
	}
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
		os.Exit(1)
	}
}
