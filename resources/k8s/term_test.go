// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package k8s

import (
	"context"
	"errors"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/skep-operator/skep/resources/clustertest"
	"github.com/skep-operator/skep/resources/internal/fair"
	"github.com/skep-operator/skep/resources/leading"
)

var creates = clustertest.Match{Verbs: []string{"create"}, Resources: []string{"configmaps"}}

func TestARequestInFlightIsCutWhenTheFenceShuts(t *testing.T) {
	d := newDesk(t)
	fence := d.transport.lead(t)
	c := d.transport.client(t, "duty")
	held := d.proxy.Rule(t, clustertest.Rule{Match: creates, Delay: &clustertest.Delay{For: -1}})
	failed := make(chan error)
	go func() {
		_, err := c.Create(why(t), configMaps, newConfigMap(d.namespace, "x", nil))
		failed <- err
	}()
	until(t, "the request at the proxy", func() bool { return held.Hits(t) == 1 })
	fence.Close()
	if err := <-failed; !errors.Is(err, leading.ErrFenced) {
		t.Errorf("the request ended with %v, want leading.ErrFenced", err)
	}
	until(t, "the connections of the term are closed", func() bool { return d.proxy.State(t).Connections == 0 })
	held.Remove(t)
	if _, err := d.Get(t.Context(), d.ref("x")); !apierrors.IsNotFound(err) {
		t.Errorf("what was cut arrived: %v", err)
	}
}

func TestNoRequestStartsAfterTheDeadline(t *testing.T) {
	d := newDesk(t)
	var late atomic.Bool
	clock := leading.Clock{Monotonic: leading.SystemClock.Monotonic, Wall: func() time.Time {
		if late.Load() {
			return time.Now().Add(time.Hour)
		}
		return time.Now()
	}}
	fence := leading.NewFence(clock, clock.Now(), time.Hour)
	t.Cleanup(fence.Close)
	if err := d.transport.open(fence); err != nil {
		t.Fatal(err)
	}
	c := d.transport.client(t, "duty")
	other, err := kubernetes.NewForConfig(c.RESTConfig())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Create(why(t), configMaps, newConfigMap(d.namespace, "x", nil)); err != nil {
		t.Fatal(err)
	}
	d.verbs(t)
	late.Store(true) // the process stood still; no timer has fired
	if _, err := c.Create(why(t), configMaps, newConfigMap(d.namespace, "y", nil)); !errors.Is(err, leading.ErrFenced) {
		t.Errorf("a late write: %v", err)
	}
	if err := other.CoreV1().Nodes().Delete(why(t), "n", metav1.DeleteOptions{}); !errors.Is(err, leading.ErrFenced) {
		t.Errorf("a late write by another client of the module: %v", err)
	}
	if _, _, err := c.Modify(why(t), d.ref("x"), label); !errors.Is(err, leading.ErrFenced) {
		t.Errorf("a late modify: %v", err)
	}
	d.expect(t, "reads are free, late writes stay here", "get")
}

func TestARequestThatWaitedForItsTurnMeetsTheFence(t *testing.T) {
	d := newDesk(t)
	fence := d.transport.lead(t)
	c := d.transport.client(t, "duty")
	d.transport.limiter = fair.New(fair.Limits{AtOnce: 1})
	done, err := d.transport.limiter.Acquire(t.Context(), "duty")
	if err != nil {
		t.Fatal(err)
	}
	failed := make(chan error)
	go func() {
		_, err := c.Create(why(t), configMaps, newConfigMap(d.namespace, "x", nil))
		failed <- err
	}()
	until(t, "the request waits", func() bool { return d.transport.limiter.Waiting() == 1 })
	fence.Close()
	done()
	if err := <-failed; !errors.Is(err, leading.ErrFenced) {
		t.Errorf("%v, want leading.ErrFenced", err)
	}
	d.expect(t, "nothing was sent")
}

func TestAClientOfAnEndedTermStaysShutInTheNext(t *testing.T) {
	d := newDesk(t)
	first := d.transport.lead(t)
	old := d.transport.client(t, "duty")
	first.Close()
	d.transport.lead(t)
	if _, err := old.Create(why(t), configMaps, newConfigMap(d.namespace, "x", nil)); !errors.Is(err, leading.ErrFenced) {
		t.Errorf("the old client: %v", err)
	}
	if _, err := d.transport.client(t, "duty").Create(why(t), configMaps, newConfigMap(d.namespace, "x", nil)); err != nil {
		t.Errorf("the new client: %v", err)
	}
}

// K8S-6.
func TestTheLeaseIsNotStarvedByModules(t *testing.T) {
	var modules, lease seen
	d := openTransport(t, func(c *Config) {
		c.QPS, c.Burst = 0.001, 1
		c.K8sAPIServer = serve(t, func(w http.ResponseWriter, r *http.Request) {
			if r.UserAgent() == "skep/1.2.3 (leader)" {
				lease.note(r)
			} else {
				modules.note(r)
			}
			answer(w, metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}})
		})
	})
	lead, err := newSession(d, newPermissions())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	defer func() {
		cancel()
		for range 100 {
			<-ended
		}
	}()
	greedy := d.client(t, "greedy")
	for range 100 {
		go func() {
			_, err := greedy.Get(ctx, Ref{Resource: configMaps, Namespace: "a", Name: "x"})
			ended <- err
		}()
	}
	until(t, "all but one wait", func() bool { return d.limiter.Waiting() == 99 && len(modules.all()) == 1 })
	leases, err := kubernetes.NewForConfig(lead.LeaseConfig())
	if err != nil {
		t.Fatal(err)
	}
	_, _ = leases.CoordinationV1().Leases("kube-system").Get(ctx, "lock", metav1.GetOptions{})
	if len(lease.all()) != 1 {
		t.Fatal("the request for the lease waits behind those of modules")
	}
	if lease.all()[0].RemoteAddr == modules.all()[0].RemoteAddr {
		t.Error("the lease shares a connection with modules")
	}
	<-ended // the one that got through
	go func() { ended <- nil }()
}
