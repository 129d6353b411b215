// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package child

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// Process is a running or finished process of this program's own binary.
type Process struct {
	cmd  *exec.Cmd
	done chan struct{}
	err  error
}

// Start runs this program with other arguments. The child is killed when this
// process ends, however it ends and even if the child is stopped.
func Start(output io.Writer, args ...string) (*Process, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find this program: %w", err)
	}
	cmd := exec.Command(self, args...)
	cmd.Stdout, cmd.Stderr = output, output
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := onStarter(cmd.Start); err != nil {
		return nil, fmt.Errorf("start %s %v: %w", self, args, err)
	}
	p := &Process{cmd: cmd, done: make(chan struct{})}
	go func() {
		defer close(p.done)
		p.err = cmd.Wait()
	}()
	return p, nil
}

// PID of the process.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Signal sends a signal.
func (p *Process) Signal(sig os.Signal) error { return p.cmd.Process.Signal(sig) }

// Pause stops the process where it is (SIGSTOP), and returns when none of its threads runs any
// more: on a busy machine that is later than the signal is sent.
func (p *Process) Pause() error {
	if err := p.Signal(unix.SIGSTOP); err != nil {
		return err
	}
	for {
		err := unix.Waitid(unix.P_PID, p.PID(), nil, unix.WSTOPPED|unix.WNOWAIT, nil)
		if !errors.Is(err, unix.EINTR) {
			return os.NewSyscallError("waitid", err)
		}
	}
}

// Done is closed when the process has ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// Wait returns how the process ended.
func (p *Process) Wait() error {
	<-p.done
	return p.err
}

var starter = sync.OnceValue(func() chan<- func() {
	work := make(chan func())
	go func() {
		runtime.LockOSThread()
		for f := range work {
			f()
		}
	}()
	return work
})

// onStarter calls start on a thread that lives as long as this process: the
// kernel sends the parent death signal when the thread ends that forked.
func onStarter(start func() error) error {
	result := make(chan error)
	starter() <- func() { result <- start() }
	return <-result
}

// ParentGone is closed when in ends: a parent that holds the other end of a pipe
// has closed it or is dead.
func ParentGone(in io.Reader) <-chan struct{} {
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		_, _ = io.Copy(io.Discard, in) // an error is an end too
	}()
	return gone
}
