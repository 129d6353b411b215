// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package clustertest

import (
	"fmt"
	"os"
	"strings"
	"syscall"
	"time"
)

// timesEnv names a file to which the tests of a package add a line when they end: the
// package's folder in the repository, and its seconds of CPU and of wall time.
const timesEnv = "SKEP_TEST_TIMES"

// recordTimes counts processes that the tests started and waited for, clusters among them.
func recordTimes(began time.Time) error {
	path := os.Getenv(timesEnv)
	if path == "" {
		return nil
	}
	cpu := time.Duration(0)
	for _, who := range []int{syscall.RUSAGE_SELF, syscall.RUSAGE_CHILDREN} {
		var usage syscall.Rusage
		if err := syscall.Getrusage(who, &usage); err != nil {
			return fmt.Errorf("read the CPU time of tests: %w", err)
		}
		cpu += time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
	}
	root, err := repositoryRoot()
	if err != nil {
		return err
	}
	dir, err := os.Getwd()
	if err != nil {
		return fmt.Errorf("name the package of the tests: %w", err)
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return fmt.Errorf("record the times of tests: %w", err)
	}
	defer f.Close()
	_, err = fmt.Fprintf(f, ".%s %.0f %.0f\n", strings.TrimPrefix(dir, root), cpu.Seconds(), time.Since(began).Seconds())
	return err
}
