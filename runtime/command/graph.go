// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package command

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/skep-operator/skep/runtime/graph"
	"github.com/skep-operator/skep/runtime/graph/render"
	"github.com/skep-operator/skep/runtime/hive"
)

func graphCommand(h *hive.Hive) *cobra.Command {
	var output string
	var drawing render.Options
	cmd := &cobra.Command{
		Use:   "graph",
		Short: "Print or draw what needs what, and what starts when",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return writeGraph(cmd, h, output, drawing) },
	}
	cmd.Flags().StringVarP(&output, "output", "o", "text", "text, order, dot, mermaid, json, svg or html")
	cmd.Flags().BoolVar(&drawing.Full, "full", false, "Show constructors, not only cells")
	return cmd
}

func writeGraph(cmd *cobra.Command, h *hive.Hive, output string, drawing render.Options) error {
	if err := Prepare(cmd, h); err != nil {
		return err
	}
	g, w := h.Graph(), cmd.OutOrStdout()
	switch output {
	case "text":
		return render.WriteText(w, g)
	case "order":
		return render.WriteOrder(w, g)
	case "dot":
		return render.WriteDot(w, g, drawing)
	case "mermaid":
		return render.WriteMermaid(w, g, drawing)
	case "json":
		return g.WriteJSON(w)
	case "svg", "html":
		return draw(cmd, g, output, drawing)
	}
	return unknownOutput(output, "text", "order", "dot", "mermaid", "json", "svg", "html")
}

// graphdraw is the program that draws graphs. It is not part of operators: its
// layout engine adds half a second to the start of a process.
const graphdraw = "graphdraw"

// undrawn are the forms that operators write themselves.
const undrawn = "text, order, dot, mermaid and json need no drawing program"

func draw(cmd *cobra.Command, g *graph.Graph, format string, drawing render.Options) error {
	program, err := findGraphdraw()
	if err != nil {
		return fmt.Errorf("-o %s needs the program %s beside this one or in PATH (make build puts it there); %s: %w", format, graphdraw, undrawn, err)
	}
	var in bytes.Buffer
	if err := g.WriteJSON(&in); err != nil {
		return err
	}
	args := []string{"-format", format}
	if drawing.Full {
		args = append(args, "-full")
	}
	var said bytes.Buffer
	run := exec.CommandContext(cmd.Context(), program, args...)
	run.Stdin, run.Stdout, run.Stderr = &in, cmd.OutOrStdout(), &said
	err = run.Run()
	// A user who stops this command kills the drawing too, which is no crash.
	if cmd.Context().Err() == nil && crashed(err, said.Bytes()) {
		return fmt.Errorf("%s crashed (%s); %s, and another version of %s may not crash", program, cause(err, said.String()), undrawn, graphdraw)
	}
	_, writeErr := said.WriteTo(cmd.ErrOrStderr())
	return errors.Join(err, writeErr)
}

// crashed reports whether the drawing program ended by a fault in it. Its own
// errors have the exit code 1; Go's runtime has several, and does not always
// print a trace. The layout engine returns its panics as errors with a trace.
func crashed(err error, said []byte) bool {
	var exit *exec.ExitError
	return errors.As(err, &exit) && (exit.ExitCode() != 1 || bytes.Contains(said, []byte("stack trace:")))
}

// cause is how a program ended, and the first line of what it said: the rest of
// a crash is for those who work on the program.
func cause(err error, said string) string {
	first, _, _ := strings.Cut(strings.TrimSpace(said), "\n")
	if first == "" {
		return err.Error()
	}
	return err.Error() + ": " + first
}

func findGraphdraw() (string, error) {
	if self, err := os.Executable(); err == nil {
		beside := filepath.Join(filepath.Dir(self), graphdraw)
		if _, err := os.Stat(beside); err == nil {
			return beside, nil
		}
	}
	return exec.LookPath(graphdraw)
}
