// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package command

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/skep-operator/skep/runtime/graph"
	"github.com/skep-operator/skep/runtime/hive"
)

func graphCommand(h *hive.Hive) *cobra.Command {
	var output string
	var drawing graph.Drawing
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

func writeGraph(cmd *cobra.Command, h *hive.Hive, output string, drawing graph.Drawing) error {
	if err := Prepare(cmd, h); err != nil {
		return err
	}
	g, w := h.Graph(), cmd.OutOrStdout()
	switch output {
	case "text":
		return g.WriteText(w)
	case "order":
		return g.WriteOrder(w)
	case "dot":
		return g.WriteDot(w, drawing)
	case "mermaid":
		return g.WriteMermaid(w, drawing)
	case "json":
		return g.WriteJSON(w)
	case "svg", "html":
		return draw(cmd, g, output, drawing)
	}
	return unknownOutput(output, "text", "order", "dot", "mermaid", "json", "svg", "html")
}

// drawer is the program that lays out graphs. It is not part of operators: its
// engine costs each process that carries it half a second at the start.
const drawer = "graphdraw"

func draw(cmd *cobra.Command, g *graph.Graph, format string, drawing graph.Drawing) error {
	program, err := findDrawer()
	if err != nil {
		return fmt.Errorf("-o %s needs the program %s beside this one or in PATH (make build puts it there); dot, mermaid and json need nothing: %w", format, drawer, err)
	}
	var in bytes.Buffer
	if err := g.WriteJSON(&in); err != nil {
		return err
	}
	args := []string{"-format", format}
	if drawing.Full {
		args = append(args, "-full")
	}
	run := exec.CommandContext(cmd.Context(), program, args...)
	run.Stdin, run.Stdout, run.Stderr = &in, cmd.OutOrStdout(), cmd.ErrOrStderr()
	return run.Run()
}

func findDrawer() (string, error) {
	if self, err := os.Executable(); err == nil {
		beside := filepath.Join(filepath.Dir(self), drawer)
		if _, err := os.Stat(beside); err == nil {
			return beside, nil
		}
	}
	return exec.LookPath(drawer)
}
