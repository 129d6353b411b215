// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
	"github.com/spf13/pflag"

	"github.com/skep-operator/skep/runtime/cell"
	"github.com/skep-operator/skep/runtime/hive"
	"github.com/skep-operator/skep/runtime/internal/nearest"
	"github.com/skep-operator/skep/runtime/printable"
)

// Subcommand is an annotation with which a module adds a command. The hive
// is configured and selected when the command runs, and never started.
type Subcommand func(*hive.Hive) *cobra.Command

// Main runs the operator of the given cells with the process' arguments, and
// returns the exit code. The first SIGINT or SIGTERM stops it in order, a second
// one at once. Memory is collected when it has grown by half and returned to the system
// when the process rests, unless GOGC is set.
func Main(cells cell.Cell, opts ...hive.Option) int {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	limitMemory(ctx)
	go stopOnSignal(stop)
	root := New(filepath.Base(os.Args[0]), cells, opts...)
	root.SetOut(printable.Writer(os.Stdout))
	root.SetErr(printable.Writer(os.Stderr))
	err := root.ExecuteContext(ctx)
	if told := exitCode(0); errors.As(err, &told) {
		return int(told)
	}
	if err != nil {
		fmt.Fprintln(root.ErrOrStderr(), "Error: "+err.Error())
		return 1
	}
	return 0
}

// signalDebounce is how long after the first signal others count as the same one:
// a signal to a process group often comes with one to the process.
const signalDebounce = time.Second

func stopOnSignal(stop func()) {
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM)
	<-signals
	stop()
	for first := time.Now(); time.Since(first) < signalDebounce; {
		<-signals
	}
	fmt.Fprintln(os.Stderr, "Stopped by a second signal.")
	os.Exit(1)
}

// New is the command line of an operator. name is the name of the program.
func New(name string, cells cell.Cell, opts ...hive.Option) *cobra.Command {
	h := hive.New(name, cells, opts...)
	root := &cobra.Command{
		Use:           name,
		Short:         "Run the operator, or look at it without a cluster",
		Args:          noArguments,
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	root.PersistentFlags().AddFlagSet(h.FlagSet())
	root.PersistentFlags().SortFlags = true
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error { return flagError(cmd, h, err) })
	output := root.Flags().StringP("output", "o", "text", "How a run tells what it has found out, as with --plan: text or json")
	root.RunE = func(cmd *cobra.Command, _ []string) error { return run(cmd, h, *output) }
	version := root.Flags().Bool("version", false, "Print the version and exit")
	cmdref := root.Flags().String("cmdref", "", "Write the reference of all commands as Markdown into this directory and exit")
	_ = root.Flags().MarkHidden("cmdref")
	root.PreRunE = func(cmd *cobra.Command, _ []string) error {
		switch {
		case *version:
			cmd.RunE = func(*cobra.Command, []string) error { return printVersion(cmd.OutOrStdout(), h) }
		case *cmdref != "":
			cmd.RunE = func(*cobra.Command, []string) error { return writeReference(root, *cmdref) }
		}
		return nil
	}
	root.AddCommand(graphCommand(h), cellsCommand(h), configCommand(h), whyCommand(h), validateCommand(h),
		metricsCommand(h), versionCommand(h), hiveCommand(h), shellCommand(h), referenceCommand())
	h.Annotations(func(_ string, a any) {
		if contribute, ok := a.(Subcommand); ok {
			add(root, contribute(h))
		}
	})
	return root
}

// add adds a command, or its sub-commands where there is one of its name.
func add(root, cmd *cobra.Command) {
	for _, c := range root.Commands() {
		if c.Name() == cmd.Name() {
			c.AddCommand(cmd.Commands()...)
			return
		}
	}
	root.AddCommand(cmd)
}

func noArguments(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	var names []string
	for _, c := range cmd.Commands() {
		names = append(names, c.Name())
	}
	return fmt.Errorf("there is no command %q; %s", args[0], nearest.Hint(args[0], names, "see --help"))
}

// flagError explains an unknown flag: it is mistyped, or its cell is not in the list, by mistake or by intention. What
// is wrong with the list comes first.
func flagError(cmd *cobra.Command, h *hive.Hive, err error) error {
	unknown := new(pflag.NotExistError)
	if !errors.As(err, &unknown) {
		return fmt.Errorf("%w; see --help", err)
	}
	name := unknown.GetSpecifiedName()
	if mistake := h.ListErr(); mistake != nil {
		return fmt.Errorf("%w\n\nunknown flag --%s; the mistake above may be why", mistake, name)
	}
	if id := h.RemovedFlag(name); id != "" {
		return fmt.Errorf("unknown flag --%s; it belongs to %s, which is removed from this operator", name, id)
	}
	var names []string
	cmd.Flags().VisitAll(func(f *pflag.Flag) { names = append(names, f.Name) })
	return fmt.Errorf("unknown flag --%s; %s", name, nearest.Hint(name, names, "see --help"))
}

func run(cmd *cobra.Command, h *hive.Hive, output string) error {
	if output != "text" && output != "json" {
		return fmt.Errorf("output %q is not known; use text or json", output)
	}
	_ = configure(cmd, h) // Run returns it, with all other problems
	err := h.Run(cmd.Context())
	if o := Outcome(nil); errors.As(err, &o) {
		return printOutcome(cmd, o, output, err)
	}
	return err
}

// configure finds the values of all options, flags of the command line among
// them.
func configure(cmd *cobra.Command, h *hive.Hive) error { return h.Configure(cmd.Flags()) }

// Prepare configures and selects for a command that only reads. Unusable values
// are printed and do not stop it; mistakes in the graph do.
func Prepare(cmd *cobra.Command, h *hive.Hive) error {
	if err := configure(cmd, h); err != nil {
		fmt.Fprintln(cmd.ErrOrStderr(), err)
	}
	return h.Select()
}

func versionCommand(h *hive.Hive) *cobra.Command {
	return &cobra.Command{
		Use: "version", Short: "Print the version", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return printVersion(cmd.OutOrStdout(), h) },
	}
}

func printVersion(w io.Writer, h *hive.Hive) error {
	_, err := fmt.Fprintln(w, h.VersionText())
	return err
}

// referenceCommand is the flag --cmdref as a command.
func referenceCommand() *cobra.Command {
	return &cobra.Command{
		Use: "cmdref DIRECTORY", Short: "Write the reference of all commands as Markdown into a directory", Hidden: true, Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error { return writeReference(cmd.Root(), args[0]) },
	}
}

// writeReference writes the Markdown of all commands, the same bytes each day.
func writeReference(root *cobra.Command, dir string) error {
	root.DisableAutoGenTag = true
	root.InitDefaultCompletionCmd()
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	return doc.GenMarkdownTreeCustom(root, dir, func(string) string { return "" }, strings.ToLower)
}
