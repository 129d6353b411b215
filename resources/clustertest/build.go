// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package clustertest

import (
	"bufio"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

const (
	rootModule  = "github.com/skep-operator/skep"
	programPath = "cmd/devcluster"
	// programDir has the binary, and nothing that changes when it does not: Go keeps the
	// result of a test only while the folders that it has looked at stay as they are.
	programDir = "bin/controlplane"
)

// programEnv is the environment variable that names a devcluster that is built already.
const programEnv = "SKEP_DEVCLUSTER"

// Program returns the path of a devcluster: that of SKEP_DEVCLUSTER, or else one in
// bin/controlplane of the repository that the working directory is in. It builds that if it is missing or
// older than its sources, and says on stderr that this takes time.
func Program() (string, error) { return program() }

var program = sync.OnceValues(findProgram)

func findProgram() (string, error) {
	if path := os.Getenv(programEnv); path != "" {
		if _, err := exec.LookPath(path); err != nil {
			return "", fmt.Errorf("find the devcluster that %s names: %w", programEnv, err)
		}
		return path, nil
	}
	root, err := repositoryRoot()
	if err != nil {
		return "", err
	}
	dir := filepath.Join(root, programDir)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", fmt.Errorf("make the directory for devcluster: %w", err)
	}
	unlock, err := lock(filepath.Join(dir, "lock"))
	if err != nil {
		return "", err
	}
	defer unlock()
	b := builder{root: root, binary: filepath.Join(dir, "devcluster"), stamp: filepath.Join(dir, "stamp")}
	return b.binary, b.ensure()
}

// repositoryRoot is the directory of the root module, above or at the working
// directory.
func repositoryRoot() (string, error) {
	start, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("find the repository: %w", err)
	}
	for dir := start; ; dir = filepath.Dir(dir) {
		if isRoot(filepath.Join(dir, "go.mod")) {
			return dir, nil
		}
		if dir == filepath.Dir(dir) {
			return "", fmt.Errorf("no directory above %s has the go.mod of %s: build devcluster there with make devcluster, and set %s to its path", start, rootModule, programEnv)
		}
	}
}

func isRoot(file string) bool {
	f, err := os.Open(file)
	if err != nil {
		return false
	}
	defer f.Close()
	for scanner := bufio.NewScanner(f); scanner.Scan(); {
		if module, ok := strings.CutPrefix(strings.TrimSpace(scanner.Text()), "module "); ok {
			return module == rootModule
		}
	}
	return false
}

// lock takes a lock that processes share: packages are tested in parallel.
func lock(file string) (unlock func(), err error) {
	f, err := os.OpenFile(file, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, fmt.Errorf("lock %s: %w", file, err)
	}
	for {
		err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX)
		if !errors.Is(err, syscall.EINTR) {
			break
		}
	}
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("lock %s: %w", file, err)
	}
	return func() { f.Close() }, nil
}

// builder builds devcluster unless what it was built from is unchanged.
type builder struct {
	root, binary, stamp string
}

// stamp says what a binary was built from.
type stamp struct {
	// Dirs hold the sources, relative to the repository.
	Dirs []string
	// Sum is over the contents of these directories and the toolchain.
	Sum string
}

func (b builder) ensure() error {
	if b.upToDate() {
		return nil
	}
	began := time.Now()
	fmt.Fprintf(os.Stderr, "clustertest: building %s; the first build compiles Kubernetes and takes minutes\n", b.binary)
	stop := b.showProgress(began)
	err := b.build()
	stop()
	if err != nil {
		return err
	}
	fmt.Fprintf(os.Stderr, "clustertest: built %s in %v\n", b.binary, time.Since(began).Round(time.Second))
	return b.writeStamp()
}

func (b builder) upToDate() bool {
	if _, err := os.Stat(b.binary); err != nil {
		return false
	}
	data, err := os.ReadFile(b.stamp)
	if err != nil {
		return false
	}
	var was stamp
	if err := json.Unmarshal(data, &was); err != nil {
		return false
	}
	sum, err := b.sum(was.Dirs)
	return err == nil && sum == was.Sum
}

func (b builder) showProgress(began time.Time) (stop func()) {
	ticker := time.NewTicker(30 * time.Second)
	done, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for {
			select {
			case <-ticker.C:
				fmt.Fprintf(os.Stderr, "clustertest: still building after %v\n", time.Since(began).Round(time.Second))
			case <-done:
				return
			}
		}
	}()
	return func() {
		ticker.Stop()
		close(done)
		<-ended
	}
}

func (b builder) build() error {
	// Built beside its place: a process that runs the old one keeps it.
	fresh := b.binary + ".new"
	cmd := b.goCommand("build", "-ldflags=-s -w", "-o", fresh, ".")
	if output, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build devcluster: %w\n%s", err, output)
	}
	if err := os.Rename(fresh, b.binary); err != nil {
		return fmt.Errorf("build devcluster: %w", err)
	}
	return nil
}

func (b builder) goCommand(args ...string) *exec.Cmd {
	cmd := exec.Command("go", args...)
	cmd.Dir = filepath.Join(b.root, programPath)
	return cmd
}

func (b builder) writeStamp() error {
	dirs, err := b.sourceDirs()
	if err != nil {
		return err
	}
	sum, err := b.sum(dirs)
	if err != nil {
		return err
	}
	data, err := json.Marshal(stamp{dirs, sum})
	if err != nil {
		return fmt.Errorf("stamp devcluster: %w", err)
	}
	if err := os.WriteFile(b.stamp, data, 0o644); err != nil {
		return fmt.Errorf("stamp devcluster: %w", err)
	}
	return nil
}

// sourceDirs asks which directories of the repository the program is made of.
func (b builder) sourceDirs() ([]string, error) {
	const format = `{{$dir := .Dir}}{{$dir}}{{range .EmbedFiles}}
{{$dir}}/{{.}}{{end}}`
	output, err := b.goCommand("list", "-deps", "-f", format, ".").Output()
	if err != nil {
		return nil, fmt.Errorf("list the sources of devcluster: %w", err)
	}
	dirs := []string{programPath, "."} // their go.mod and go.sum
	for path := range strings.Lines(string(output)) {
		relative, err := filepath.Rel(b.root, strings.TrimSpace(path))
		if err != nil || !filepath.IsLocal(relative) {
			continue // a dependency: go.sum knows
		}
		if info, err := os.Stat(filepath.Join(b.root, relative)); err == nil && !info.IsDir() {
			relative = filepath.Dir(relative)
		}
		dirs = append(dirs, relative)
	}
	slices.Sort(dirs)
	return slices.Compact(dirs), nil
}

// sum is over what a build reads: the files of directories, without tests.
func (b builder) sum(dirs []string) (string, error) {
	h := sha256.New()
	fmt.Fprintln(h, runtime.Version())
	for _, dir := range dirs {
		files, err := b.sources(dir)
		if err != nil {
			return "", fmt.Errorf("read the sources of devcluster: %w", err)
		}
		for _, file := range files {
			if err := sumFile(h, b.root, filepath.Join(dir, file)); err != nil {
				return "", err
			}
		}
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// sources are the names of the files in a directory that a build reads. The root of the
// repository, of which that is go.mod, is not looked at: something there changes with
// every commit.
func (b builder) sources(dir string) (files []string, err error) {
	if dir == "." {
		return []string{"go.mod"}, nil
	}
	entries, err := os.ReadDir(filepath.Join(b.root, dir))
	for _, entry := range entries {
		if isSource(entry) {
			files = append(files, entry.Name())
		}
	}
	return files, err
}

func isSource(entry fs.DirEntry) bool {
	name := entry.Name()
	return entry.Type().IsRegular() && !strings.HasSuffix(name, "_test.go") && !strings.HasSuffix(name, ".md")
}

func sumFile(h io.Writer, root, name string) error {
	f, err := os.Open(filepath.Join(root, name))
	if err != nil {
		return fmt.Errorf("read the sources of devcluster: %w", err)
	}
	defer f.Close()
	fmt.Fprintln(h, filepath.ToSlash(name))
	if _, err := io.Copy(h, f); err != nil {
		return fmt.Errorf("read the sources of devcluster: %w", err)
	}
	return nil
}
