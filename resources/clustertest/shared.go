// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package clustertest

import (
	"fmt"
	"os"
	"sync"
	"testing"
	"time"
)

var shared struct {
	sync.Mutex
	wrapped bool
	cluster *Cluster
	dir     string
	err     error
}

// runningEnv is the environment variable that names the directory of a running devcluster.
const runningEnv = "SKEP_CLUSTER"

// Shared is one cluster for all tests of a package: it starts when the first of
// them asks, so a run of those that do not ask costs nothing. Tests that share
// take namespaces and proxies of their own. The package's TestMain must go
// through Wrap. With SKEP_CLUSTER=directory it is the devcluster that runs in that
// directory.
func Shared(tb testing.TB) *Cluster {
	tb.Helper()
	skipIfShort(tb)
	shared.Lock()
	defer shared.Unlock()
	if !shared.wrapped {
		tb.Fatal("clustertest.Shared needs a TestMain that goes through clustertest.Wrap")
	}
	if shared.cluster == nil && shared.err == nil {
		shared.cluster, shared.err = startShared()
	}
	if shared.err != nil {
		tb.Fatal(shared.err)
	}
	return shared.cluster
}

// Environment is the setting with which another test process shares the cluster.
func (c *Cluster) Environment() string { return runningEnv + "=" + c.process.dir }

func startShared() (*Cluster, error) {
	if dir := os.Getenv(runningEnv); dir != "" {
		p, err := attach(dir)
		if err != nil {
			return nil, err
		}
		return &Cluster{p}, nil
	}
	dir, err := os.MkdirTemp("", "devcluster-")
	if err != nil {
		return nil, fmt.Errorf("make a directory for the shared cluster: %w", err)
	}
	shared.dir = dir
	// A test process that is killed removes nothing.
	return startCluster(dir, []Option{withFlags("--remove-dir")})
}

// Runner runs the tests of a package. It is what waittest.Main takes.
type Runner interface {
	Run() (exitCode int)
}

// Wrap makes a package's tests stop their shared cluster when they are done, and record
// their times where SKEP_TEST_TIMES says so:
//
//	func TestMain(m *testing.M) { os.Exit(clustertest.Wrap(m).Run()) }
//	func TestMain(m *testing.M) { waittest.Main(clustertest.Wrap(m)) }
func Wrap(m Runner) Runner {
	shared.Lock()
	defer shared.Unlock()
	shared.wrapped = true
	return wrapped{m}
}

type wrapped struct{ inner Runner }

func (w wrapped) Run() int {
	began := time.Now()
	code := w.inner.Run()
	if err := stopShared(); err != nil {
		fmt.Fprintln(os.Stderr, "clustertest: the shared cluster:", err)
		code = max(code, 1)
	}
	if err := recordTimes(began); err != nil {
		fmt.Fprintln(os.Stderr, "clustertest:", err)
		code = max(code, 1)
	}
	return code
}

func stopShared() error {
	shared.Lock()
	defer shared.Unlock()
	if shared.dir != "" {
		defer os.RemoveAll(shared.dir)
	}
	if shared.cluster == nil {
		return nil
	}
	return shared.cluster.process.stop()
}
