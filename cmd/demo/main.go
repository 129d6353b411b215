// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

// Demo runs the operator before your eyes: against a small cluster that it
// starts and fills itself, or against the one that KUBECONFIG names.
package main

import (
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
	flag.StringVar(&show.Operator, "operator", "bin/operator", "the operator's binary")
	flag.StringVar(&show.Manifests, "manifests", "testdata/demo", "directory of what a cluster that the demo starts is filled with")
	build := flag.Bool("build", false, "only make sure that the control plane is built")
	flag.Parse()
	show.Args = flag.Args()

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
