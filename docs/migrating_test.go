// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package docs

import (
	"context"
	"os"
	"sync"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/utils/ptr"

	"github.com/skep-operator/skep/cells"
	"github.com/skep-operator/skep/resources/clustertest"
	"github.com/skep-operator/skep/runtime/waittest"
)

// The timing of these tests, shorter than the default. No replica may lose the lease
// because the machine is slow.
const (
	leaseDuration = 10 * time.Second
	renewDeadline = 9 * time.Second
	retryPeriod   = 500 * time.Millisecond
)

// original is a replica that holds the lease as cilium-operator does: client-go's
// elector, on the lease of that name, with an identity of host and random
// characters.
type original struct {
	identity string
	leads    chan struct{}
	stop     func() // and wait for the end
}

// runOriginal campaigns until it is stopped, and then releases the lease.
func (s *site) runOriginal(namespace string) *original {
	s.t.Helper()
	host, err := os.Hostname()
	if err != nil {
		s.t.Fatal(err)
	}
	o := &original{identity: host + "-" + rand.String(10), leads: make(chan struct{})}
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock: &resourcelock.LeaseLock{
			LeaseMeta:  metav1.ObjectMeta{Name: leaseName, Namespace: namespace},
			Client:     s.core.CoordinationV1(),
			LockConfig: resourcelock.ResourceLockConfig{Identity: o.identity},
		},
		LeaseDuration: leaseDuration, RenewDeadline: renewDeadline, RetryPeriod: retryPeriod, ReleaseOnCancel: true,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(context.Context) { close(o.leads) },
			OnStoppedLeading: func() {},
		},
	})
	if err != nil {
		s.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		elector.Run(ctx)
	}()
	o.stop = sync.OnceFunc(func() { cancel(); <-ended })
	s.t.Cleanup(o.stop)
	return o
}

func (o *original) awaitLead(t *testing.T) {
	t.Helper()
	select {
	case <-o.leads:
	case <-time.After(waittest.Limit):
		t.Fatal("the original never came to lead")
	}
}

// killedOriginal makes the lease of an original that was killed when it had just renewed it.
func (s *site) killedOriginal(namespace string) coordinationv1.LeaseSpec {
	s.t.Helper()
	lease, now := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: leaseName, Namespace: namespace}}, metav1.NowMicro()
	lease.Spec = coordinationv1.LeaseSpec{
		HolderIdentity:       ptr.To("host-" + rand.String(10)),
		LeaseDurationSeconds: ptr.To(int32(leaseDuration / time.Second)),
		AcquireTime:          &now,
		RenewTime:            &now,
		LeaseTransitions:     ptr.To[int32](0),
	}
	if _, err := s.core.CoordinationV1().Leases(namespace).Create(s.t.Context(), lease, metav1.CreateOptions{}); err != nil {
		s.t.Fatal(err)
	}
	return lease.Spec
}

// runOurs starts an operator with the flags that it shares with the original.
func (s *site) runOurs(namespace, kubeconfig string) *running {
	return start(s.t, cells.Operator,
		"--k8s-kubeconfig-path="+kubeconfig, "--k8s-namespace="+namespace,
		"--leader-election-lease-duration="+leaseDuration.String(),
		"--leader-election-renew-deadline="+renewDeadline.String(),
		"--leader-election-retry-period="+retryPeriod.String(),
		"--enable-ipv6=false", "--cluster-pool-ipv4-cidr=10.3.0.0/16")
}

// TestMigration hands the lease over from an original to us and back: at no time
// do both lead, and each reads what the other left. The original's release is waited out.
func TestMigration(t *testing.T) {
	s := newSite(t)
	s.define()
	namespace, proxy := s.namespace(), s.NewProxy(t)

	before := s.runOriginal(namespace)
	before.awaitLead(t)
	ours := s.runOurs(namespace, proxy.Kubeconfig())
	ours.log.Wait(t, "standing by", before.identity)
	s.addNode("node", nil, map[string]any{})
	if n := writers(t, proxy, "ciliumnodes"); len(n) > 0 || s.field("node", "spec", "ipam", "podCIDRs") != "" {
		t.Errorf("we write while the original leads: %v", n)
	}

	before.stop()
	released := s.lease(namespace).Spec.RenewTime.Time
	until(t, "we give the node its pod CIDR", func() bool { return s.field("node", "spec", "ipam", "podCIDRs") != "" })
	s.waitedOut(proxy, released)
	given := s.field("node", "spec", "ipam", "podCIDRs")
	checkLease(t, s.lease(namespace), 1)

	after := s.runOriginal(namespace)
	ours.stop()
	after.awaitLead(t)
	if got := s.holder(namespace); got != after.identity {
		t.Errorf("the lease is held by %q, want the original %q", got, after.identity)
	}
	checkLease(t, s.lease(namespace), 2)
	if got := s.field("node", "spec", "ipam", "podCIDRs"); got != given {
		t.Errorf("the node's pod CIDR was %s and is %s", given, got)
	}
}

// TestMigrationFromAKilledOriginal takes the lease over from one that did not
// release it: we write nothing before it has run out.
func TestMigrationFromAKilledOriginal(t *testing.T) {
	s := newSite(t)
	s.define()
	namespace, proxy := s.namespace(), s.NewProxy(t)

	killed := s.killedOriginal(namespace)
	ours := s.runOurs(namespace, proxy.Kubeconfig())
	ours.log.Wait(t, "standing by", *killed.HolderIdentity)
	s.addNode("node", nil, map[string]any{})
	until(t, "we give the node its pod CIDR", func() bool { return s.field("node", "spec", "ipam", "podCIDRs") != "" })

	s.waitedOut(proxy, killed.RenewTime.Time)
	checkLease(t, s.lease(namespace), 1)
}

// waitedOut checks that nothing was written within the lease duration of the last write of
// the lease by the original.
func (s *site) waitedOut(proxy *clustertest.Proxy, last time.Time) {
	s.t.Helper()
	for _, q := range proxy.Requests(s.t, 0) {
		if q.Mutates() && q.Resource == "ciliumnodes" && q.Received.Before(last.Add(leaseDuration)) {
			s.t.Errorf("we wrote at %s, and the original's lease is waited out until %s", q.Received, last.Add(leaseDuration))
		}
	}
}

// checkLease looks for what the other's elector reads.
func checkLease(t *testing.T, l *coordinationv1.Lease, transitions int32) {
	t.Helper()
	spec := l.Spec
	if spec.HolderIdentity == nil || spec.LeaseDurationSeconds == nil || spec.AcquireTime == nil || spec.RenewTime == nil || spec.LeaseTransitions == nil {
		t.Fatalf("the lease lacks a field: %v", spec)
	}
	if *spec.LeaseDurationSeconds != int32(leaseDuration/time.Second) || *spec.LeaseTransitions != transitions {
		t.Errorf("the lease is for %d s after %d transitions, want %s after %d", *spec.LeaseDurationSeconds, *spec.LeaseTransitions, leaseDuration, transitions)
	}
}
