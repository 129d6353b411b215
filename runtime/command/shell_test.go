// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package command_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/skep-operator/skep/runtime/cell"
	"github.com/skep-operator/skep/runtime/command"
	"github.com/skep-operator/skep/runtime/hive"
)

// greeting is a module with a command, which the shell has by another name.
func greeting() cell.Cell {
	var greet command.Subcommand = func(*hive.Hive) *cobra.Command {
		var loud bool
		cmd := &cobra.Command{Use: "greet", Args: cobra.MaximumNArgs(1), RunE: func(cmd *cobra.Command, args []string) error {
			_, err := fmt.Fprintf(cmd.OutOrStdout(), "hello %s, loud: %v\n", strings.Join(args, ""), loud)
			return err
		}}
		cmd.Flags().BoolVar(&loud, "loud", false, "")
		return cmd
	}
	return cell.Module("greeting", "Greets", cell.Config(socketConfig{}), cell.Annotate(greet),
		cell.Annotate(command.ShellCommand{Name: "say/hello", Short: "Greets", Args: []string{"greet"}}))
}

// CONF-18; number B8 of the contract's operator-shell.md.
func TestShell(t *testing.T) {
	for _, test := range []struct {
		args         string
		input        string
		want, failed string
	}{
		{args: "shell say/hello you", want: "hello you, loud: false\n"},
		{args: "shell --operator-sock-path=/x say/hello you --loud", want: "hello you, loud: true\n"},
		{args: "shell", input: "say/hello a --loud\n\n# a comment\nsay/hello b\nexit\nsay/hello c\n", want: "hello a, loud: true\nhello b, loud: false\n"},
		{args: "shell", input: ""},
		{args: "shell help", want: "say/hello  Greets, as greet\nhelp       This list\n"},
		{args: "shell say/helo", failed: `the shell has no command "say/helo"; did you mean say/hello?`},
		{args: "shell say/hello a b", failed: "say/hello: accepts at most 1 arg(s), received 2"},
		{args: "shell say/hello --quiet", failed: "say/hello: unknown flag: --quiet"},
	} {
		root := command.New("test", cell.Set(greeting()))
		var out bytes.Buffer
		root.SetOut(&out)
		root.SetErr(&out)
		root.SetIn(strings.NewReader(test.input))
		root.SetArgs(strings.Fields(test.args))
		err := root.ExecuteContext(t.Context())
		if (err == nil) != (test.failed == "") || err != nil && err.Error() != test.failed {
			t.Errorf("%s: %v, and it is to fail with %q", test.args, err, test.failed)
		}
		if out.String() != test.want {
			t.Errorf("%s prints %q, and is to print %q", test.args, &out, test.want)
		}
	}
}
