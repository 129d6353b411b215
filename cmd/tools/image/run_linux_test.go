// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// container is an unpacked image that processes of the test are confined to, as a container runtime does it with
// readOnlyRootFilesystem: its root can only be read, and there is a /dev/shm.
type container struct {
	t    *testing.T
	root string
	user uint32
}

// newContainer unpacks the image of this machine's architecture. Mounts are made in a namespace of the calling
// goroutine's thread, which ends with it: only that goroutine may run processes. Folders in mounts may be written to.
func newContainer(t *testing.T, path string, mounts ...string) *container {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("only root may mount, and change the root of a process; try sudo")
	}
	image := images(t, path)[runtime.GOARCH]
	if image == nil {
		t.Skipf("the image is not for %s", runtime.GOARCH)
	}
	root := t.TempDir()
	// Folders of the test above it are not readable by other users.
	if err := os.Chmod(root, 0o755); err != nil {
		t.Fatal(err)
	}
	unpack(t, image, root)
	if err := os.MkdirAll(filepath.Join(root, "dev/shm"), 0o755); err != nil {
		t.Fatal(err)
	}
	runtime.LockOSThread() // and never unlock
	mount := func(from, to, kind string, flags uintptr, data string) {
		if err := syscall.Mount(from, to, kind, flags, data); err != nil {
			t.Skipf("mounting %s is not allowed here: %v", to, err)
		}
		if from != "" { // what has no source changes a mount that is there
			t.Cleanup(func() { _ = syscall.Unmount(to, syscall.MNT_DETACH) })
		}
	}
	if err := syscall.Unshare(syscall.CLONE_NEWNS); err != nil {
		t.Skipf("mount namespaces are not allowed here: %v", err)
	}
	mount("", "/", "", syscall.MS_REC|syscall.MS_PRIVATE, "")
	mount(root, root, "", syscall.MS_BIND, "")
	mount("", root, "", syscall.MS_BIND|syscall.MS_REMOUNT|syscall.MS_RDONLY|syscall.MS_NOSUID, "")
	for _, to := range append(mounts, "dev/shm") {
		mount("tmpfs", filepath.Join(root, to), "tmpfs", syscall.MS_NOSUID|syscall.MS_NODEV, "mode=1777")
	}
	return &container{t: t, root: root}
}

// command runs a program of the image, with the environment of the image, as the user of the container.
func (c *container) command(ctx context.Context, program string, args ...string) *exec.Cmd {
	if !strings.HasPrefix(program, "/") {
		program = "/usr/bin/" + program
	}
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Dir = "/"
	cmd.Env = []string{"PATH=/usr/bin:/bin", "HOME=/", "GOPS_CONFIG_DIR=/dev/shm/gops"}
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Chroot: c.root, Credential: &syscall.Credential{Uid: c.user, Gid: c.user}, Pdeathsig: syscall.SIGKILL,
	}
	cmd.Err = nil // it is looked for below the new root
	return cmd
}

func (c *container) output(program string, args ...string) string {
	c.t.Helper()
	out, err := c.command(c.t.Context(), program, args...).CombinedOutput()
	if err != nil {
		c.t.Fatalf("%s %s: %v\n%s", program, strings.Join(args, " "), err, out)
	}
	return string(out)
}

// TestRun runs the program of the tests in a small image.
func TestRun(t *testing.T) {
	to := filepath.Join(t.TempDir(), "image")
	if err := run(sourceOf(t), to); err != nil {
		t.Fatal(err)
	}
	c := newContainer(t, to)
	if got := c.output("operator"); got != "it runs\n" {
		t.Errorf("it prints %q", got)
	}
	if err := c.command(t.Context(), "sh").Run(); err == nil {
		t.Error("there is a shell")
	}
}

// TestImage runs the operator from the image that `make image` made.
func TestImage(t *testing.T) {
	path, version := os.Getenv("SKEP_IMAGE"), os.Getenv("SKEP_IMAGE_VERSION")
	if path == "" {
		t.Skip("SKEP_IMAGE names no layout; make image makes one and runs this test")
	}
	c := newContainer(t, path)
	entries, err := os.ReadDir(filepath.Join(c.root, "usr/bin"))
	if err != nil || len(entries) < 6 {
		t.Fatalf("%d programs: %v", len(entries), err)
	}
	for _, e := range entries {
		if got := c.output(e.Name(), "--version"); !strings.HasPrefix(got, "Cilium-Operator "+version) {
			t.Errorf("%s --version prints %q, want version %s", e.Name(), got, version)
		}
		if got := c.output(e.Name(), "--help"); !strings.Contains(got, "--config-dir") {
			t.Errorf("%s --help does not tell of --config-dir:\n%s", e.Name(), got)
		}
	}
	out, err := c.command(t.Context(), "cilium-operator-alibabacloud", "--ipam=eni", "--k8s-api-server=http://127.0.0.1:1").CombinedOutput()
	if err == nil || !strings.Contains(string(out), "cilium-operator-alibabacloud doesn't support --ipam=eni (use cilium-operator-aws)") {
		t.Errorf("with the mode of another cloud it ends with %v and prints %q", err, out)
	}
	for _, as := range []struct {
		user   uint32
		mounts []string
	}{
		{0, nil}, {0, []string{"var/run/cilium"}}, {65532, []string{"var/run/cilium"}}, {10001, nil},
	} {
		t.Run(fmt.Sprintf("user %d, volumes %q", as.user, as.mounts), func(t *testing.T) {
			c := newContainer(t, path, as.mounts...)
			c.user = as.user
			c.serves()
		})
	}
}

// serves runs an operator whose API server is away, and asks for its status as `kubectl exec` does: what it writes finds
// a place, though the root is read-only.
func (c *container) serves() {
	c.t.Helper()
	var log bytes.Buffer
	operator := c.command(context.Background(), "cilium-operator-generic",
		"--k8s-api-server=http://127.0.0.1:1", "--cluster-pool-ipv4-cidr=10.0.0.0/8", "--enable-ipv6=false",
		"--operator-api-serve-addr=127.0.0.1:0", "--enable-metrics", "--operator-prometheus-serve-addr=127.0.0.1:0", "--gops-port=0")
	operator.Stdout, operator.Stderr = &log, &log
	if err := operator.Start(); err != nil {
		c.t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- operator.Wait() }()
	degraded, err := c.awaitStatus(ended)
	if err == nil {
		var stacks []byte
		if stacks, err = c.command(c.t.Context(), "/bin/gops", "stack", fmt.Sprint(operator.Process.Pid)).CombinedOutput(); !bytes.Contains(stacks, []byte("goroutine ")) {
			c.t.Errorf("gops stack: %v\n%s", err, stacks)
		}
	}
	if err == nil {
		err = errors.Join(operator.Process.Signal(syscall.SIGTERM), <-ended)
	}
	if err != nil {
		_ = operator.Process.Kill()
		c.t.Fatalf("%v; log of the operator:\n%s", err, &log)
	}
	// Of its own servers one writes a socket, another a file.
	for _, id := range degraded {
		if strings.HasPrefix(id, "health") {
			c.t.Errorf("%s is degraded; log of the operator:\n%s", id, &log)
		}
	}
	if !slices.ContainsFunc(degraded, func(id string) bool { return strings.HasPrefix(id, "k8s") }) {
		c.t.Errorf("an API server that is away is not told of: degraded are %q", degraded)
	}
}

// awaitStatus asks until the operator tells that its API server is away, and returns what is degraded.
func (c *container) awaitStatus(ended chan error) (degraded []string, err error) {
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) { // an image that starts and does not answer is no image
		if len(ended) > 0 {
			return nil, fmt.Errorf("the operator ended: %w", <-ended)
		}
		var out []byte
		if out, err = c.command(c.t.Context(), "operator", "status", "--json").CombinedOutput(); err != nil {
			err = fmt.Errorf("operator status: %w\n%s", err, out)
			continue
		}
		var status struct{ Degraded []struct{ ID string } }
		if err := json.Unmarshal(out, &status); err != nil {
			return nil, fmt.Errorf("operator status --json: %w\n%s", err, out)
		}
		degraded = nil
		for _, d := range status.Degraded {
			degraded = append(degraded, d.ID)
		}
		if len(degraded) > 0 {
			break
		}
	}
	return degraded, err
}
