// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package command

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/skep-operator/skep/resources/clustertest/control"
)

// detached runs this command again in the background, without --detach, and
// returns when the devcluster is ready.
func detached(out io.Writer, dir string) error {
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find this program: %w", err)
	}
	if err := os.MkdirAll(filepath.Join(dir, "logs"), 0o700); err != nil {
		return fmt.Errorf("make the directory %s: %w", dir, err)
	}
	logFile := filepath.Join(dir, "logs", "detached.log")
	log, err := os.OpenFile(logFile, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("open the log: %w", err)
	}
	defer log.Close() // the process has its own

	args := slices.DeleteFunc(slices.Clone(os.Args[1:]), func(arg string) bool {
		return arg == "--detach" || strings.HasPrefix(arg, "--detach=")
	})
	cmd := exec.Command(self, args...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start the devcluster: %w", err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	for {
		info, err := control.ReadInfo(dir)
		if err == nil && info.PID == cmd.Process.Pid {
			fmt.Fprintf(out, "devcluster is ready in %.1f s: %s\n", info.ReadySeconds, describe(info))
			return nil
		}
		select {
		case err := <-ended:
			text, _ := os.ReadFile(logFile)
			return fmt.Errorf("the devcluster ended before it was ready (%v): %s", err, strings.TrimSpace(string(text)))
		case <-time.After(50 * time.Millisecond):
		}
	}
}
