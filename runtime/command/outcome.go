// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package command

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"
)

// Outcome is the cause of a shutdown that is no failure, such as a finished dry
// run. The command prints it and exits with its code.
type Outcome interface {
	error
	ExitCode() int
	WriteText(w io.Writer) error
	WriteJSON(w io.Writer) error
}

// exitCode is the error of a command that has printed everything.
type exitCode int

// Exit is the error of a command that has printed everything and ends with a code.
func Exit(code int) error { return exitCode(code) }

func (c exitCode) Error() string { return fmt.Sprintf("exit code %d", int(c)) }

// printOutcome prints an outcome, and other errors of the run.
func printOutcome(cmd *cobra.Command, o Outcome, output string, err error) error {
	write := o.WriteText
	if output == "json" {
		write = o.WriteJSON
	}
	if err := write(cmd.OutOrStdout()); err != nil {
		return fmt.Errorf("printing what the run has found out: %w", err)
	}
	if err.Error() != o.Error() {
		fmt.Fprintln(cmd.ErrOrStderr(), "Error: "+err.Error())
	}
	if o.ExitCode() == 0 {
		return nil
	}
	return exitCode(o.ExitCode())
}
