// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package demo

import (
	"bufio"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"
)

// stopTimeout is how long a program may take to stop before it is killed.
const stopTimeout = 30 * time.Second

// child is a program that runs. It is in a process group of its own: what is
// typed at the terminal reaches the demo alone, which stops its children in
// their order.
type child struct {
	name  string
	cmd   *exec.Cmd
	stdin io.Closer // ends when this process does, however it does
	ended chan struct{}
	err   error // how it ended; read it once ended is closed
}

// start runs a program, whose every line of output goes to line, from a
// goroutine of the child's. Without env it has that of the demo.
func start(line func(string), env []string, program string, args ...string) (*child, error) {
	c := &child{name: filepath.Base(program), cmd: exec.Command(program, args...), ended: make(chan struct{})}
	c.cmd.Env = env
	c.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	output, err := c.cmd.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", c.name, err)
	}
	c.cmd.Stderr = c.cmd.Stdout
	if c.stdin, err = c.cmd.StdinPipe(); err != nil {
		return nil, fmt.Errorf("start %s: %w", c.name, err)
	}
	if err := c.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", c.name, err)
	}
	go func() {
		defer close(c.ended)
		lines := bufio.NewReader(output)
		for {
			text, err := lines.ReadString('\n')
			if text != "" {
				line(text)
			}
			if err != nil {
				break
			}
		}
		c.err = c.cmd.Wait()
	}()
	return c, nil
}

// stop ends the program, gently first. That it has ended already is no error.
func (c *child) stop() error {
	_ = c.cmd.Process.Signal(syscall.SIGTERM) // an error means that it has ended
	select {
	case <-c.ended:
	case <-time.After(stopTimeout):
		_ = c.cmd.Process.Kill()
		<-c.ended
		return fmt.Errorf("%s did not stop within %v and was killed", c.name, stopTimeout)
	}
	return nil
}
