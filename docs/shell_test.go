// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package docs

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// shell runs command lines as a reader of the documents would, in
// docs/testdata, with the test binary as "operator".
type shell struct {
	t   *testing.T
	env []string
}

func newShell(t *testing.T, env ...string) *shell {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	bin := t.TempDir()
	if err := os.Symlink(self, filepath.Join(bin, "operator")); err != nil {
		t.Fatal(err)
	}
	path := bin + string(filepath.ListSeparator) + os.Getenv("PATH")
	return &shell{t, append([]string{asOperator + "=all", "GORACE=atexit_sleep_ms=0", "PATH=" + path, "HOME=" + bin}, env...)}
}

func (s *shell) command(ctx context.Context, line string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "sh", "-c", line)
	cmd.Dir, cmd.Env = "testdata", s.env
	return cmd
}

// run returns what a line prints. That it fails is part of what it shows.
func (s *shell) run(line string) string {
	s.t.Helper()
	out, err := s.command(s.t.Context(), line).CombinedOutput()
	if len(out) == 0 {
		s.t.Fatalf("%s prints nothing: %v", line, err)
	}
	return tidy(string(out))
}

var lineNumbers = regexp.MustCompile(`(\.go):\d+`)

// tidy takes out what changes from commit to commit, and what editors do not
// keep.
func tidy(out string) string {
	var b strings.Builder
	for line := range strings.Lines(lineNumbers.ReplaceAllString(out, "$1")) {
		b.WriteString(strings.TrimRight(line, " \n") + "\n")
	}
	return b.String()
}
