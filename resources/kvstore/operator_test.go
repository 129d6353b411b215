// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package kvstore

import (
	"context"
	"io"
	"testing"
	"time"

	"github.com/skep-operator/skep/resources/cluster"
	"github.com/skep-operator/skep/resources/clustertest"
	"github.com/skep-operator/skep/resources/k8s"
	"github.com/skep-operator/skep/resources/leading"
	"github.com/skep-operator/skep/resources/reconcile"
	"github.com/skep-operator/skep/runtime/cell"
	"github.com/skep-operator/skep/runtime/hive"
	"github.com/skep-operator/skep/runtime/job"
	"github.com/skep-operator/skep/runtime/lifecycle"
	"github.com/skep-operator/skep/runtime/waittest"
)

// leadership enters and leaves the term of a hive under test.
type leadership struct {
	term  lifecycle.Term
	check k8s.HealthCheck
}

type leadershipParams struct {
	cell.In

	Term   lifecycle.Term    `name:"leader"`
	Checks []k8s.HealthCheck `group:"health checks"`
}

// The cell in a hive: a duty in the term gets a client of its own, whose writes
// pass the fence; a new term has a new connection; health follows.
func TestInTheTerm(t *testing.T) {
	t.Parallel()
	e := clustertest.StartEtcd(t, 1)
	etcd := directClient(t, e)
	wrote := make(chan string, 10)
	var lead leadership
	duty := cell.Module("duty", "Writes a key", cell.EnabledBy(InUse), cell.Job("write", func(c Client, s cell.ModuleInfo) job.Job {
		return job.OneShot(func(ctx context.Context) error {
			ctx = k8s.WithCause(ctx, &k8s.Cause{Rule: "duty write"})
			err := c.Write(ctx, PutLeased("cilium/"+s.ID, []byte(s.Term)))
			if err == nil {
				wrote <- c.(*client).module
			}
			return err
		})
	}))
	leader := cell.Module("leading", "Enters the term", cell.Invoke(func(p leadershipParams) { lead = leadership{p.Term, p.Checks[0]} }))
	fence := cell.Decorate(func(*leading.Fence) *leading.Fence { return leading.Unfenced() }) // stands in for the lease
	h := hive.New("test", cell.Set(cluster.Cell(cluster.DefaultConfig), k8s.Cell, reconcile.Cell, leader, cell.Term("leader", fence, Cell, duty)),
		hive.LogTo(io.Discard), hive.Environ(func(string) (string, bool) { return "", false }))
	fs := h.FlagSet()
	check(t, fs.Parse([]string{
		"--kvstore=etcd", `--kvstore-opt={"etcd.address":"` + e.Endpoints()[0] + `"}`, // KV-E1, on the command line
		"--k8s-api-server=http://" + nowhere,
	}))
	check(t, h.Configure(fs))
	check(t, h.Start(t.Context()))
	t.Cleanup(func() { check(t, h.Stop(context.Background())) })

	if err := lead.check.Check(t.Context()); err != nil {
		t.Errorf("a standby is unhealthy: %v", err)
	}
	for term := range 2 {
		check(t, lead.term.Enter(t.Context()))
		select {
		case module := <-wrote:
			if module != "duty" {
				t.Errorf("the duty's writes have the module %s", module)
			}
		case <-time.After(waittest.Limit):
			t.Fatalf("nothing was written in term %d", term+1)
		}
		eventually(t, "health is well", func() bool { return lead.check.Check(t.Context()) == nil })
		check(t, lead.term.Leave(t.Context()))
	}
	if !holds(t, etcd, "cilium/duty", "leader") {
		t.Error("the key is not there")
	}
}

// KV-E6 and KV-C1: when the kvstore is in use.
func TestInUse(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		args []string
		want bool
	}{
		{[]string{"--kvstore=", "--identity-allocation-mode=kvstore"}, false},
		{[]string{"--kvstore=etcd", "--kvstore-opt=etcd.address=x"}, true},
		{[]string{"--kvstore=etcd", "--identity-allocation-mode=crd", "--synchronize-k8s-services=false", "--synchronize-k8s-nodes=false"}, false},
		{[]string{"--kvstore=etcd", "--identity-allocation-mode=doublewrite-readcrd", "--synchronize-k8s-services=false", "--synchronize-k8s-nodes=false"}, true},
		{[]string{"--kvstore=etcd", "--identity-allocation-mode=crd", "--synchronize-k8s-services=false"}, true},
	} {
		h := hive.New("test", cell.Set(cluster.Cell(cluster.DefaultConfig), k8s.Cell, reconcile.Cell, Cell),
			hive.LogTo(io.Discard), hive.Environ(func(string) (string, bool) { return "", false }))
		fs := h.FlagSet()
		check(t, fs.Parse(c.args))
		check(t, h.Configure(fs))
		check(t, h.Select())
		if got := h.Graph().Module("kvstore").Enabled; got != c.want {
			t.Errorf("%v: in use is %v", c.args, got)
		}
	}
}
