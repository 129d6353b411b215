// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package tools

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// ciSite has an origin with .ci/run and a Makefile that shows where it runs, and a place
// where CI keeps its clone.
type ciSite struct {
	t                   *testing.T
	origin, bin, place  string
	checkouts, contract string // what has checkouts, with the reference data beside them
}

// ciMakefile leaves a process running, as a test may that fails.
const ciMakefile = `test:
	@sleep 60 >/dev/null 2>&1 & echo "sleeper $$!"
	@echo "in $$PWD"; cat kept changed; ls; echo "graph $$(command -v chromium)"; echo "ec2 $$(command -v aws)"
	@echo "contract $$SKEP_CONTRACT_DIR"; cat "$${SKEP_CONTRACT_DIR:-../shared/contract}/flags.md" ../shared/contract/flags.md
	@mkdir -p bin; echo >>bin/program; exit $${CI_TEST_FAILS:-0}
`

func newCISite(t *testing.T) *ciSite {
	dir := t.TempDir()
	s := &ciSite{t: t, origin: filepath.Join(dir, "origin"), bin: filepath.Join(dir, "bin"), place: filepath.Join(dir, "place"),
		checkouts: filepath.Join(dir, "checkouts"), contract: filepath.Join(dir, "checkouts", "shared", "contract")}
	script, err := os.ReadFile(filepath.Join("..", "..", ".ci", "run"))
	if err != nil {
		t.Fatal(err)
	}
	for _, program := range []string{"chromium", "aws"} { // or they would be installed
		s.write(s.bin, program, "#!/bin/sh\n")
	}
	s.write(s.origin, ".ci/run", string(script))
	s.write(s.origin, "Makefile", ciMakefile)
	s.write(s.origin, ".gitignore", "/bin/\n")
	for _, name := range []string{"kept", "changed", "removed"} {
		s.write(s.origin, name, "first "+name+"\n")
	}
	s.write(s.contract, "flags.md", "first flags\n")
	s.write(s.checkouts, "shared/conformance/crd.yaml", "{}\n")
	s.git(s.origin, "init", "-q")
	s.commit()
	return s
}

func (s *ciSite) write(dir, name, text string) {
	s.t.Helper()
	file := filepath.Join(dir, name)
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		s.t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(text), 0o755); err != nil {
		s.t.Fatal(err)
	}
}

func (s *ciSite) git(dir string, args ...string) {
	s.t.Helper()
	cmd := exec.Command("git", append([]string{"-C", dir, "-c", "user.name=ci", "-c", "user.email=ci@localhost"}, args...)...)
	if output, err := cmd.CombinedOutput(); err != nil {
		s.t.Fatalf("git %s: %v\n%s", args, err, output)
	}
}

func (s *ciSite) commit() {
	s.t.Helper()
	s.git(s.origin, "add", "-A")
	s.git(s.origin, "commit", "-q", "-m", "a commit")
}

// checkout is another clean one of the origin, with options of git clone.
func (s *ciSite) checkout(name string, options ...string) string {
	s.t.Helper()
	dir := filepath.Join(s.checkouts, name)
	s.git(".", slices.Concat([]string{"clone", "-q"}, options, []string{"file://" + s.origin, dir})...)
	return dir
}

// run runs CI in a checkout.
func (s *ciSite) run(checkout string, env ...string) (output string, err error) {
	s.t.Helper()
	cmd := exec.Command(filepath.Join(checkout, ".ci", "run"))
	// CI itself may run this test, under make.
	own := slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "SKEP_") || strings.HasPrefix(v, "MAKE") })
	cmd.Env = slices.Concat(own, env, []string{"SKEP_CI_DIR=" + s.place, "PATH=" + s.bin + ":" + os.Getenv("PATH")})
	text, err := cmd.CombinedOutput()
	for line := range strings.Lines(string(text)) {
		if pid, ok := strings.CutPrefix(strings.TrimSpace(line), "sleeper "); ok {
			s.t.Cleanup(func() { _ = exec.Command("kill", pid).Run() })
		}
	}
	return string(text), err
}

func (s *ciSite) modified(name string) time.Time {
	s.t.Helper()
	info, err := os.Stat(filepath.Join(s.place, "project", name))
	if err != nil {
		s.t.Fatal(err)
	}
	return info.ModTime()
}

// wantRun runs CI in a checkout and looks for what its output has to have.
func (s *ciSite) wantRun(checkout string, want ...string) (output string) {
	s.t.Helper()
	text, err := s.run(checkout)
	if err != nil {
		s.t.Fatalf("%v\n%s", err, text)
	}
	for _, w := range want {
		if !strings.Contains(text, w) {
			s.t.Errorf("%q is missing in\n%s", w, text)
		}
	}
	return text
}

// TestCIKeepsWhatDoesNotChange: what does not differ between two commits has the same
// name and the same time, which is what Go keeps results by.
func TestCIKeepsWhatDoesNotChange(t *testing.T) {
	s := newCISite(t)
	clone := filepath.Join(s.place, "project")
	s.wantRun(s.checkout("one"), "in "+clone, "first kept", "first changed", "removed", "first flags\nfirst flags", "graph /", "ec2 /")
	changed := s.modified("changed")
	s.write(clone, "left-over", "of a run that was killed")
	s.write(clone, "kept", "changed by hand")
	s.git(clone, "checkout", "-q", "kept")
	kept := s.modified("kept")

	s.write(s.origin, "changed", "second changed\n")
	if err := os.Remove(filepath.Join(s.origin, "removed")); err != nil {
		t.Fatal(err)
	}
	s.commit()
	// The process that the first run has left does not hold the lock.
	text := s.wantRun(s.checkout("two", "--depth=1"), "in "+clone, "first kept", "second changed")
	if strings.Contains(text, "removed") || strings.Contains(text, "left-over") {
		t.Errorf("something is there that is not in the commit:\n%s", text)
	}
	if !s.modified("kept").Equal(kept) {
		t.Error("a file that did not change has another time")
	}
	if s.modified("changed").Equal(changed) {
		t.Error("a file that changed has the same time")
	}
	if program, _ := os.ReadFile(filepath.Join(clone, "bin", "program")); string(program) != "\n\n" {
		t.Errorf("bin/ was not kept: %q", program)
	}
}

// TestCISeesReferenceData: data outside of the repository have another name when they
// change, and only then.
func TestCISeesReferenceData(t *testing.T) {
	s := newCISite(t)
	checkout := s.checkout("one")
	named := func() string {
		for line := range strings.Lines(s.wantRun(checkout)) {
			if name, ok := strings.CutPrefix(line, "contract "); ok {
				return name
			}
		}
		t.Fatal("no contract")
		return ""
	}
	first := named()
	if second := named(); second != first {
		t.Errorf("nothing changed, and it is named %s after %s", second, first)
	}
	s.write(s.contract, "flags.md", "second flags\n")
	if third := named(); third == first {
		t.Errorf("another one is named %s, too", third)
	}
}

func TestCIFails(t *testing.T) {
	s := newCISite(t)
	checkout := s.checkout("one")
	if text, err := s.run(checkout, "CI_TEST_FAILS=3"); err == nil {
		t.Errorf("it passes though make test fails:\n%s", text)
	}
	if err := os.RemoveAll(filepath.Join(s.place, "project", ".git", "objects")); err != nil {
		t.Fatal(err)
	}
	s.wantRun(checkout, "in "+filepath.Join(s.place, "project"), "first kept") // the clone is made anew
	s.write(checkout, "kept", "not committed\n")
	s.wantRun(checkout, "in "+checkout, "not committed")
}
