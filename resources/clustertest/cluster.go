// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package clustertest

import (
	"context"
	"os/exec"
	"strconv"
	"testing"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/skep-operator/skep/resources/clustertest/control"
)

// Cluster is a running control plane with RBAC on.
type Cluster struct {
	process *process
}

// Option changes the cluster that Start makes.
type Option func(*[]string)

func withFlags(args ...string) Option {
	return func(all *[]string) { *all = append(*all, args...) }
}

// AuditLevel says how much the audit log tells of a request: Metadata (the
// default), Request or RequestResponse.
func AuditLevel(level string) Option { return withFlags("--audit-level", level) }

// WithoutWatchList makes the API server one that cannot stream initial state.
func WithoutWatchList() Option { return withFlags("--watch-list=false") }

// EtcdMembers gives the cluster an etcd of several members, which are processes
// that can be controlled.
func EtcdMembers(n int) Option { return withFlags("--etcd-members", strconv.Itoa(n)) }

// EtcdThroughProxies sends the API server to etcd through the members' proxies,
// see Etcd.Proxy.
func EtcdThroughProxies() Option { return withFlags("--etcd-through-proxies") }

// Loaded fills the cluster before its API server starts.
func Loaded(load Load) Option {
	args := load.args()
	if load.Size != "" {
		args = append(args, "--load", load.Size)
	}
	return withFlags(args...)
}

// Load is what a cluster is filled with. The same values give the same objects.
type Load struct {
	// Size is S (1,000 nodes, 10,000 pods), M (2,000, 16,000) or L (5,000,
	// 100,000); Nodes and Pods, if not 0, take its place.
	Size        string
	Nodes, Pods int
	// Seed of all that looks random; 0 means 1.
	Seed uint64
	// Converged adds what an operator would have made: pod CIDRs and
	// CiliumIdentities.
	Converged bool
	// ThroughAPI sends requests instead of writing into etcd what they would
	// come to. It has no meaning for Loaded.
	ThroughAPI bool
}

func (l Load) args() []string {
	args := []string{"--seed", strconv.FormatUint(max(l.Seed, 1), 10)}
	if l.Nodes != 0 {
		args = append(args, "--nodes", strconv.Itoa(l.Nodes))
	}
	if l.Pods != 0 {
		args = append(args, "--pods", strconv.Itoa(l.Pods))
	}
	if l.Converged {
		args = append(args, "--converged")
	}
	return args
}

// Start runs a cluster until the test ends.
func Start(tb testing.TB, opts ...Option) *Cluster {
	tb.Helper()
	skipIfShort(tb)
	c, err := startCluster(tb.TempDir(), opts)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := c.process.stop(); err != nil {
			tb.Error(err)
		}
	})
	return c
}

func startCluster(dir string, opts []Option) (*Cluster, error) {
	args := []string{"up"}
	for _, opt := range opts {
		opt(&args)
	}
	p, err := start(dir, args...)
	if err != nil {
		return nil, err
	}
	return &Cluster{p}, nil
}

// Info says where everything is.
func (c *Cluster) Info() control.Info { return c.process.info }

// Control is the whole control API, for what the methods here do not offer.
func (c *Cluster) Control() *control.Client { return c.process.control }

// Kubeconfig is the path of the administrator's kubeconfig, straight to the API
// server.
func (c *Cluster) Kubeconfig() string { return c.process.info.Kubeconfig }

// AdminConfig is the administrator's way straight to the API server. The
// client's own rate limit is off.
func (c *Cluster) AdminConfig(tb testing.TB) *rest.Config {
	tb.Helper()
	return config(tb, c.Kubeconfig())
}

// UserKubeconfig writes a kubeconfig of a user that authenticates by a
// certificate, straight to the API server. The user has no rights but those that
// RBAC gives it.
func (c *Cluster) UserKubeconfig(tb testing.TB, user string, groups ...string) string {
	tb.Helper()
	return c.kubeconfig(tb, control.Kubeconfig{User: user, Groups: groups})
}

// UserConfig is as UserKubeconfig.
func (c *Cluster) UserConfig(tb testing.TB, user string, groups ...string) *rest.Config {
	tb.Helper()
	return config(tb, c.UserKubeconfig(tb, user, groups...))
}

// ServiceAccountKubeconfig writes a kubeconfig of a service account that exists,
// straight to the API server. Its token is valid for a year.
func (c *Cluster) ServiceAccountKubeconfig(tb testing.TB, namespace, name string) string {
	tb.Helper()
	return c.kubeconfig(tb, control.Kubeconfig{ServiceAccount: namespace + "/" + name})
}

func (c *Cluster) kubeconfig(tb testing.TB, ask control.Kubeconfig) (path string) {
	tb.Helper()
	must(tb, func(ctx context.Context) (err error) {
		path, err = c.process.control.Kubeconfig(ctx, ask)
		return err
	})
	return path
}

func config(tb testing.TB, kubeconfig string) *rest.Config {
	tb.Helper()
	loaded, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		tb.Fatalf("load kubeconfig %s: %v", kubeconfig, err)
	}
	loaded.QPS = -1
	return loaded
}

// Load fills the running cluster.
func (c *Cluster) Load(tb testing.TB, load Load) {
	tb.Helper()
	binary, err := program()
	if err != nil {
		tb.Fatal(err)
	}
	args := append([]string{"load", "--dir", c.process.dir}, load.args()...)
	args = append(args, "--size", load.Size)
	if load.ThroughAPI {
		args = append(args, "--through-api")
	}
	output, err := exec.CommandContext(tb.Context(), binary, args...).CombinedOutput()
	if err != nil {
		tb.Fatalf("load the cluster: %v\n%s", err, output)
	}
}

// StopAPIServer stops the API server alone: its port refuses connections. For a
// server that one client cannot reach, break a Proxy instead. It is
// started again when the test ends.
func (c *Cluster) StopAPIServer(tb testing.TB) {
	tb.Helper()
	must(tb, c.process.control.StopAPIServer)
	tb.Cleanup(func() {
		ctx, cancel := call()
		defer cancel()
		_ = c.process.control.StartAPIServer(ctx) // it may run again
	})
}

// StartAPIServer starts the stopped API server on its port, with its data, and
// waits until it is ready.
func (c *Cluster) StartAPIServer(tb testing.TB) {
	tb.Helper()
	must(tb, c.process.control.StartAPIServer)
}
