// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package contest

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"

	"github.com/skep-operator/skep/resources/stream/streamtest"
)

// The environment of a child process says what it is there for.
const (
	envServe      = "SKEP_BENCH_SERVE" // number of pods
	envContest    = "SKEP_BENCH_CONTEST"
	envContestant = "SKEP_BENCH_CONTESTANT"
	envURL        = "SKEP_BENCH_URL"
)

// IsChild reports whether this is a child process of a Runner.
func IsChild() bool { return os.Getenv(envServe) != "" || os.Getenv(envContest) != "" }

// Child does the work of a child process, if this is one.
func Child(ctx context.Context, all []Contest) (isChild bool, err error) {
	if !IsChild() {
		return false, nil
	}
	if pods := os.Getenv(envServe); pods != "" {
		return true, serve(pods)
	}
	who, err := find(all, os.Getenv(envContest), os.Getenv(envContestant))
	if err != nil {
		return true, err
	}
	ctx, cancel := context.WithTimeout(ctx, runLimit)
	defer cancel()
	figures, err := who.Run(ctx, os.Getenv(envURL))
	if err != nil {
		return true, err
	}
	return true, json.NewEncoder(os.Stdout).Encode(figures)
}

func (r Runner) child(ctx context.Context, env ...string) (*exec.Cmd, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, self, r.Args...)
	cmd.Env = append(os.Environ(), env...)
	cmd.Stderr = os.Stderr
	return cmd, nil
}

// measure runs a contestant in a process of its own.
func (r Runner) measure(ctx context.Context, contest, contestant, url string) (figures Figures, err error) {
	cmd, err := r.child(ctx, envContest+"="+contest, envContestant+"="+contestant, envURL+"="+url)
	if err != nil {
		return nil, err
	}
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("its process: %w", err)
	}
	if err := json.Unmarshal(out, &figures); err != nil {
		return nil, fmt.Errorf("its process wrote no figures: %w", err)
	}
	return figures, nil
}

// server is a process that serves pods, so that its work counts for no contestant.
type server struct {
	url string
	cmd *exec.Cmd
	in  io.Closer
}

func (r Runner) startServer(ctx context.Context, pods int) (*server, error) {
	cmd, err := r.child(ctx, envServe+"="+strconv.Itoa(pods))
	if err != nil {
		return nil, err
	}
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("starting the server: %w", err)
	}
	s := &server{cmd: cmd, in: in}
	address, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		s.stop()
		return nil, fmt.Errorf("the server has not said where it listens: %w", err)
	}
	s.url = "http://" + strings.TrimSpace(address)
	return s, nil
}

// stop ends the server, which goes when its input does.
func (s *server) stop() {
	_ = s.in.Close()
	_ = s.cmd.Wait()
}

func serve(pods string) error {
	n, err := strconv.Atoi(pods)
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	if _, err := fmt.Println(listener.Addr()); err != nil {
		return err
	}
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		_ = listener.Close()
	}()
	_ = http.Serve(listener, streamtest.NewPods(n)) // ends with the listener
	return nil
}
