// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

// Cloudsim serves a cloud on this host, by the protocol of the real one: operators and the cloud's own tools are pointed at it
// by the variables that it prints.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"

	"github.com/skep-operator/skep/cmd/cloudsim/internal/aws"
	"github.com/skep-operator/skep/cmd/cloudsim/internal/azure"
)

// clouds serve until their context ends. args are what is left of the command line.
var clouds = map[string]func(ctx context.Context, out io.Writer, args []string) error{
	"aws":   aws.Serve,
	"azure": azure.Serve,
}

func main() {
	names := strings.Join(slices.Sorted(maps.Keys(clouds)), ", ")
	cloud := flag.String("cloud", "aws", "the cloud: "+names+"; options of its own follow after --")
	flag.Parse()
	serve := clouds[*cloud]
	if serve == nil {
		fmt.Fprintf(os.Stderr, "cloudsim: there is no cloud %q: -cloud is one of %s\n", *cloud, names)
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := serve(ctx, os.Stdout, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "cloudsim:", err)
		os.Exit(1)
	}
}
