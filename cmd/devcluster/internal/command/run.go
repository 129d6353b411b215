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
	"runtime/debug"
	"syscall"
	"time"

	"github.com/spf13/pflag"

	"github.com/skep-operator/skep/cmd/devcluster/internal/child"
	"github.com/skep-operator/skep/cmd/devcluster/internal/cluster"
)

// started is when this process started, near enough.
var started = time.Now()

// startTimeout bounds how long a devcluster may take to be ready; a cold disk and
// a busy machine are allowed for. With a load it has more to read.
const (
	startTimeout       = 2 * time.Minute
	loadedStartTimeout = 15 * time.Minute
)

// runFlags are those of commands that run a devcluster.
type runFlags struct {
	dir           string
	removeDir     bool
	dieWithParent bool
}

func (f *runFlags) add(flags *pflag.FlagSet) {
	addDir(flags, &f.dir)
	flags.BoolVar(&f.removeDir, "remove-dir", false, "remove the directory when the devcluster has stopped well")
	flags.BoolVar(&f.dieWithParent, "die-with-parent", false,
		"stop when standard input ends, such as when the process at the other end of the pipe has died")
}

func addDir(flags *pflag.FlagSet, dir *string) {
	flags.StringVar(dir, "dir", "devcluster", "directory that holds everything of the devcluster")
}

// run runs a devcluster in the foreground until it is asked to stop.
func (f *runFlags) run(out io.Writer, opts cluster.Options) error {
	opts.Dir, opts.Started = f.dir, started
	ctx, cancel := f.untilAskedToStop()
	defer cancel()

	timeout := startTimeout
	if opts.Load != nil {
		timeout = loadedStartTimeout
		saveMemory(opts.Load.Size.Pods)
	}
	startCtx, cancelStart := context.WithTimeoutCause(ctx, timeout, fmt.Errorf("not ready after %v", timeout))
	defer cancelStart()
	c, err := cluster.Start(startCtx, opts)
	if err != nil {
		return err
	}
	debug.FreeOSMemory() // starting, and loading still more, leaves much behind
	info := c.Info()
	fmt.Fprintf(out, "devcluster is ready in %.1f s: %s\n", info.ReadySeconds, describe(info))

	var failure error
	select {
	case <-ctx.Done():
	case <-c.ShutdownAsked():
	case failure = <-c.Failed():
	}
	if err := errors.Join(failure, c.Stop()); err != nil || !f.removeDir {
		return err
	}
	if err := os.RemoveAll(f.dir); err != nil {
		return fmt.Errorf("remove the directory: %w", err)
	}
	return nil
}

// saveMemory makes the garbage collector work harder for a large load, whose
// garbage would otherwise take as many gigabytes as the load itself.
func saveMemory(pods int) {
	const large = 50_000
	if _, chosen := os.LookupEnv("GOGC"); pods >= large && !chosen {
		debug.SetGCPercent(50)
	}
}

// untilAskedToStop is done at SIGINT, SIGTERM or, if asked, the parent's death. A
// second signal ends the process at once.
func (f *runFlags) untilAskedToStop() (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(context.Background())
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM)
	var gone <-chan struct{}
	if f.dieWithParent {
		gone = child.ParentGone(os.Stdin)
	}
	go func() {
		select {
		case <-signals:
		case <-gone:
			// No parent is left to kill a process that hangs.
			time.AfterFunc(forcedExit, func() { os.Exit(1) })
		case <-ctx.Done():
			return
		}
		cancel()
		<-signals
		os.Exit(1)
	}()
	return ctx, cancel
}

// forcedExit is how long an orphan may take to stop: more than the cluster may.
const forcedExit = 2 * time.Minute
