// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package command

import (
	"bufio"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/skep-operator/skep/runtime/hive"
	"github.com/skep-operator/skep/runtime/internal/nearest"
)

// ShellCommand is an annotation with a command of the shell, which tools for the original run in its pod: a command of ours that
// serves the purpose (CONF-18).
type ShellCommand struct {
	Name  string // db/dump
	Short string
	Args  []string // status --json; what follows the name comes after them
}

// shell runs commands of the original's shell.
type shell []ShellCommand

func shellCommand(h *hive.Hive) *cobra.Command {
	var all shell
	h.Annotations(func(_ string, a any) {
		if one, ok := a.(ShellCommand); ok {
			all = append(all, one)
		}
	})
	slices.SortFunc(all, func(a, b ShellCommand) int { return strings.Compare(a.Name, b.Name) })
	cmd := &cobra.Command{
		Use:   "shell [command...]",
		Short: "Run a command by the name that it has in the shell of the original; without one, each line of the input",
		Args:  cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return all.run(cmd, args)
			}
			return all.runEach(cmd)
		},
	}
	cmd.Flags().SetInterspersed(false) // what follows the name belongs to it
	return cmd
}

// runEach runs the lines of the input, up to the first that fails.
func (s shell) runEach(cmd *cobra.Command) error {
	lines := bufio.NewScanner(cmd.InOrStdin())
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		switch {
		case len(fields) == 0 || strings.HasPrefix(fields[0], "#"):
		case fields[0] == "exit":
			return nil
		default:
			if err := s.run(cmd, fields); err != nil {
				return err
			}
		}
	}
	return lines.Err()
}

func (s shell) run(cmd *cobra.Command, line []string) error {
	if line[0] == "help" {
		return s.help(cmd.OutOrStdout())
	}
	i := slices.IndexFunc(s, func(c ShellCommand) bool { return c.Name == line[0] })
	if i < 0 {
		names := []string{"help"}
		for _, c := range s {
			names = append(names, c.Name)
		}
		return fmt.Errorf("the shell has no command %q; %s", line[0], nearest.Hint(line[0], names, "help lists those that it has"))
	}
	target, args, err := cmd.Root().Find(slices.Concat(s[i].Args, line[1:]))
	if err != nil {
		return err
	}
	target.SetContext(cmd.Context())
	target.LocalNonPersistentFlags().VisitAll(func(f *pflag.Flag) { // of an earlier line
		_ = f.Value.Set(f.DefValue)
		f.Changed = false
	})
	if err := target.ParseFlags(args); err != nil {
		return fmt.Errorf("%s: %w", s[i].Name, err)
	}
	args = target.Flags().Args()
	if err := target.ValidateArgs(args); err != nil {
		return fmt.Errorf("%s: %w", s[i].Name, err)
	}
	return target.RunE(target, args)
}

func (s shell) help(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, c := range s {
		fmt.Fprintf(t, "%s\t%s, as %s\n", c.Name, c.Short, strings.Join(c.Args, " "))
	}
	fmt.Fprintln(t, "help\tThis list")
	return t.Flush()
}
