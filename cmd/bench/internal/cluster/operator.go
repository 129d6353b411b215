// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package cluster

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"
)

// operator is a process of the operator.
type operator struct {
	user     string
	cmd      *exec.Cmd
	socket   string
	pprof    int
	api      int
	log      *os.File
	ended    chan struct{}
	began    time.Time
	stopping atomic.Bool // to end
}

// run starts an operator that makes its requests as user.
func (b Bench) run(ctx context.Context, p *plane, user string, args ...string) (*operator, error) {
	kubeconfig, err := p.kubeconfig(ctx, user)
	if err != nil {
		return nil, err
	}
	pprof, err := freePort()
	if err != nil {
		return nil, err
	}
	api, err := freePort()
	if err != nil {
		return nil, err
	}
	o := &operator{user: user, socket: filepath.Join(p.dir, user+".sock"), pprof: pprof, api: api, ended: make(chan struct{})}
	if o.log, err = os.Create(filepath.Join(p.dir, user+".log")); err != nil {
		return nil, err
	}
	o.cmd = exec.Command(b.Operator, append([]string{
		"--k8s-kubeconfig-path=" + kubeconfig, "--k8s-namespace=kube-system", "--operator-sock-path=" + o.socket,
		"--operator-api-serve-addr=127.0.0.1:" + strconv.Itoa(api), "--enable-gops=false",
		"--operator-pprof", "--operator-pprof-port=" + strconv.Itoa(pprof),
		"--enable-ipv6=false", "--cluster-pool-ipv4-cidr=10.0.0.0/8",
	}, args...)...)
	o.cmd.Env = append(os.Environ(), b.env...)
	o.cmd.Stdout, o.cmd.Stderr = o.log, o.log
	o.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	o.began = time.Now()
	if err := o.cmd.Start(); err != nil {
		return nil, fmt.Errorf("%w: build it with make build", err)
	}
	go func() {
		err := o.cmd.Wait()
		if !o.stopping.Load() {
			text, _ := os.ReadFile(o.log.Name())
			p.fail(fmt.Errorf("%s has ended (%v): %s", o.user, err, text[max(0, len(text)-4000):]))
		}
		close(o.ended)
	}()
	return o, nil
}

// signal tells the process to end. One that ends untold cancels all that is done
// on its control plane.
func (o *operator) signal(s syscall.Signal) error {
	o.stopping.Store(true)
	return o.cmd.Process.Signal(s)
}

// end signals the process and waits for its end.
func (o *operator) end(s syscall.Signal) {
	_ = o.signal(s)
	<-o.ended
	_ = o.log.Close()
}

// leads waits until the operator leads, or stands by.
func (o *operator) waits(ctx context.Context, leading bool) error {
	return until(ctx, func() (bool, error) {
		text, err := o.ask(ctx, "/status")
		var s struct {
			Election struct {
				Leading bool
				Holder  string
			}
		}
		return err == nil && json.Unmarshal(text, &s) == nil && s.Election.Leading == leading && s.Election.Holder != "", nil
	})
}

// ready waits until the operator could take over at once: all of its streams hold
// their state.
func (o *operator) ready(ctx context.Context) error {
	client := http.Client{Timeout: 5 * time.Second}
	return until(ctx, func() (bool, error) {
		resp, err := client.Get(fmt.Sprintf("http://127.0.0.1:%d/v1/readyz", o.api))
		if err != nil {
			return false, nil // it does not listen yet
		}
		return resp.StatusCode == http.StatusOK, resp.Body.Close()
	})
}

func (o *operator) ask(ctx context.Context, path string) ([]byte, error) {
	client := http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", o.socket)
		},
	}}
	return get(ctx, &client, "http://operator"+path)
}

func get(ctx context.Context, client *http.Client, url string) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	resp, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	return io.ReadAll(resp.Body)
}

// memory is what is resident, and then the live heap after a collection, in MB: to
// tell of its heap takes the operator memory, too.
func (o *operator) memory(ctx context.Context) (heap, resident, peak float64, err error) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", o.cmd.Process.Pid))
	if err != nil {
		return 0, 0, 0, err
	}
	for line := range strings.Lines(string(status)) {
		fields := strings.Fields(line)
		if len(fields) < 2 {
			continue
		}
		kb, _ := strconv.ParseFloat(fields[1], 64)
		switch fields[0] {
		case "VmRSS:":
			resident = kb / 1024
		case "VmHWM:":
			peak = kb / 1024
		}
	}
	url := fmt.Sprintf("http://localhost:%d/debug/pprof/heap?gc=1&debug=1", o.pprof)
	profile, err := get(ctx, http.DefaultClient, url)
	if err != nil {
		return 0, 0, 0, err
	}
	for line := range strings.Lines(string(profile)) {
		if value, ok := strings.CutPrefix(line, "# HeapAlloc = "); ok {
			heap, err = strconv.ParseFloat(strings.TrimSpace(value), 64)
		}
	}
	return heap / 1e6, resident, peak, err
}

// profile saves a heap profile, if there is a directory for it.
func (o *operator) profile(ctx context.Context, dir string) error {
	if dir == "" {
		return nil
	}
	profile, err := get(ctx, http.DefaultClient, fmt.Sprintf("http://localhost:%d/debug/pprof/heap?gc=1", o.pprof))
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, o.user+".heap.pprof"), profile, 0o644)
}

// cpu is the user and system time so far, in seconds.
func (o *operator) cpu() (float64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", o.cmd.Process.Pid))
	if err != nil {
		return 0, err
	}
	_, after, _ := strings.Cut(string(text), ") ")
	fields := strings.Fields(after)
	user, _ := strconv.ParseFloat(fields[11], 64)
	system, _ := strconv.ParseFloat(fields[12], 64)
	return (user + system) / 100, nil // clock ticks are 10 ms wherever Go runs on Linux
}

func freePort() (int, error) {
	l, err := net.Listen("tcp", "localhost:0")
	if err != nil {
		return 0, err
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port, nil
}

// until tries until something holds, as long as patience lasts.
func until(ctx context.Context, holds func() (bool, error)) error {
	ctx, cancel := context.WithTimeoutCause(ctx, patience, fmt.Errorf("waited for %v in vain", patience))
	defer cancel()
	for {
		ok, err := holds()
		if ok || err != nil {
			return err
		}
		select {
		case <-time.After(5 * time.Millisecond):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}
