// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package clustertest

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/skep-operator/skep/resources/clustertest/control"
)

// How long a devcluster may take on a busy machine: none of it is judged. It has limits
// of its own to become ready and to stop, which are shorter, and says more about them.
const (
	readyTimeout = 20 * time.Minute
	stopTimeout  = 5 * time.Minute
	callTimeout  = 5 * time.Minute // to start an API server is a call, too
)

// process is a devcluster that runs.
type process struct {
	dir     string
	cmd     *exec.Cmd // nil: of another process
	parent  io.Closer // our end of its standard input
	ended   chan struct{}
	err     error // how it ended; read it once ended is closed
	info    control.Info
	control *control.Client
}

// skipIfShort skips a test that would start a process, and perhaps a build.
func skipIfShort(tb testing.TB) {
	tb.Helper()
	if testing.Short() {
		tb.Skip("needs a devcluster, which -short does without")
	}
}

// start runs a devcluster command in a directory and waits until it is ready.
func start(dir string, args ...string) (*process, error) {
	binary, err := program()
	if err != nil {
		return nil, err
	}
	p := &process{dir: dir, ended: make(chan struct{})}
	p.cmd = exec.Command(binary, append(args, "--dir", dir, "--die-with-parent")...)
	// It lives for a minute and has a small heap: a quarter of its CPU time would be garbage collection.
	p.cmd.Env = append([]string{"GOGC=400"}, os.Environ()...)
	if err := p.launch(); err != nil {
		return nil, fmt.Errorf("start devcluster: %w", err)
	}
	p.info, err = control.ReadInfo(dir)
	if err != nil {
		p.stop()
		return nil, err
	}
	p.control = control.NewClient(p.info)
	return p, nil
}

// attach returns the devcluster that another process runs in a directory.
func attach(dir string) (*process, error) {
	info, err := control.ReadInfo(dir)
	if err != nil {
		return nil, fmt.Errorf("share the devcluster that %s names: %w", runningEnv, err)
	}
	return &process{dir: dir, info: info, control: control.NewClient(info)}, nil
}

// launch starts the process and returns when it says that it is ready.
func (p *process) launch() error {
	errorLog, err := p.openErrorLog()
	if err != nil {
		return err
	}
	defer errorLog.Close() // the process has its own
	p.cmd.Stderr = errorLog
	stdin, err := p.cmd.StdinPipe()
	if err != nil {
		return err
	}
	stdout, err := p.cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := p.cmd.Start(); err != nil {
		return err
	}
	p.parent = stdin
	ready := make(chan struct{})
	go func() {
		defer close(p.ended)
		lines := bufio.NewReader(stdout)
		if _, err := lines.ReadString('\n'); err == nil {
			close(ready)
		}
		_, _ = io.Copy(io.Discard, lines) // until it ends
		p.err = p.cmd.Wait()
	}()
	select {
	case <-ready:
		return nil
	case <-p.ended:
		p.parent.Close()
		return fmt.Errorf("it ended before it was ready: %w\n%s", p.err, p.logTail())
	case <-time.After(readyTimeout):
		p.stop()
		return fmt.Errorf("it was not ready after %v\n%s", readyTimeout, p.logTail())
	}
}

func (p *process) openErrorLog() (*os.File, error) {
	logs := filepath.Join(p.dir, "logs")
	if err := os.MkdirAll(logs, 0o700); err != nil {
		return nil, err
	}
	return os.Create(filepath.Join(logs, "stderr.log"))
}

// stop ends the process, gently first. A process that has ended before is an error. One that is not ours runs on.
func (p *process) stop() error {
	if p.control != nil {
		p.control.Close()
	}
	if p.cmd == nil {
		return nil
	}
	defer p.parent.Close()
	select {
	case <-p.ended:
		return fmt.Errorf("devcluster died: %v\n%s", p.err, p.logTail())
	default:
	}
	_ = p.cmd.Process.Signal(syscall.SIGTERM) // an error means that it has ended
	select {
	case <-p.ended:
	case <-time.After(stopTimeout):
		_ = p.cmd.Process.Kill()
		<-p.ended
		return fmt.Errorf("devcluster did not stop within %v and was killed\n%s", stopTimeout, p.logTail())
	}
	if p.err != nil {
		return fmt.Errorf("devcluster did not stop well: %w\n%s", p.err, p.logTail())
	}
	return nil
}

// logTail is the end of what the process said.
func (p *process) logTail() string {
	var text strings.Builder
	for _, name := range []string{"stderr.log", "devcluster.log", "kubernetes.log"} {
		data, err := os.ReadFile(filepath.Join(p.dir, "logs", name))
		if err != nil || len(data) == 0 {
			continue
		}
		lines := bytes.Split(bytes.TrimSpace(data), []byte("\n"))
		lines = lines[max(0, len(lines)-15):]
		fmt.Fprintf(&text, "--- the end of %s:\n%s\n", name, bytes.Join(lines, []byte("\n")))
	}
	return text.String()
}

// call bounds a call of the control API. It outlives the test's context, which
// ends before its cleanup.
func call() (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(context.Background(), callTimeout, errors.New("devcluster does not answer"))
}

// must fails the test if a call of the control API failed.
func must(tb testing.TB, do func(ctx context.Context) error) {
	tb.Helper()
	ctx, cancel := call()
	defer cancel()
	if err := do(ctx); err != nil {
		tb.Fatal(err)
	}
}
