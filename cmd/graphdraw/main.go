// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

// Command graphdraw draws a graph, which it reads as JSON from its standard
// input, as SVG or as one HTML page:
//
//	operator graph -o json | graphdraw -format html > operator.html
//
// The graph command of operators runs it for -o svg and -o html.
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

	"github.com/skep-operator/skep/cmd/graphdraw/internal/draw"
	"github.com/skep-operator/skep/runtime/graph"
	"github.com/skep-operator/skep/runtime/graph/render"
	"github.com/skep-operator/skep/runtime/printable"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr)
	stop()
	if err != nil {
		fmt.Fprintln(printable.Writer(os.Stderr), "graphdraw:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, in io.Reader, out, problems io.Writer) error {
	flags := flag.NewFlagSet("graphdraw", flag.ContinueOnError)
	flags.SetOutput(problems)
	format := flags.String("format", "svg", "svg or html")
	full := flags.Bool("full", false, "show constructors, hooks and jobs, not only cells")
	if err := flags.Parse(args); errors.Is(err, flag.ErrHelp) {
		return nil
	} else if err != nil {
		return err
	}
	if flags.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q; the graph is read from the standard input", flags.Arg(0))
	}
	write := draw.SVG
	switch *format {
	case "svg":
	case "html":
		write = draw.HTML
	default:
		return fmt.Errorf("-format %s is unknown; use svg or html", *format)
	}
	g, err := graph.Read(in)
	if err != nil {
		return err
	}
	return write(ctx, printable.Writer(out), g, render.Options{Full: *full})
}
