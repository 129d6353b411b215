// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package leader_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/skep-operator/skep/cells/leader"
	"github.com/skep-operator/skep/resources/clustertest"
	"github.com/skep-operator/skep/resources/k8s"
	"github.com/skep-operator/skep/resources/leading"
	"github.com/skep-operator/skep/resources/operatortest"
	"github.com/skep-operator/skep/runtime/cell"
	"github.com/skep-operator/skep/runtime/lifecycle"
)

func TestMain(m *testing.M) { operatortest.Main(m) }

const (
	leaseName     = "cilium-operator-resource-lock"
	leaseDuration = 4 * time.Second
	renewDeadline = 3 * time.Second
	retryPeriod   = 500 * time.Millisecond
)

// site is a cluster in which replicas compete for a lease.
type site struct {
	*operatortest.Env
	cluster *clustertest.Cluster

	leaseDuration, renewDeadline time.Duration
	requestTimeout               time.Duration // 0 is half of the renew deadline
}

// unhurried makes leases last an hour, for tests that wait for none to run out.
func (s *site) unhurried() *site {
	s.leaseDuration, s.renewDeadline = time.Hour, time.Hour-time.Second
	return s
}

func newSite(t *testing.T) *site {
	t.Helper()
	c := clustertest.Shared(t)
	s := &site{Env: operatortest.NewEnv(t, c), cluster: c, leaseDuration: leaseDuration, renewDeadline: renewDeadline}
	s.CreateNamespace()
	return s
}

func (s *site) lease(t *testing.T) *coordinationv1.Lease {
	t.Helper()
	l, err := s.Core.CoordinationV1().Leases(s.Namespace).Get(t.Context(), leaseName, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func holder(l *coordinationv1.Lease) string {
	if l.Spec.HolderIdentity == nil {
		return ""
	}
	return *l.Spec.HolderIdentity
}

// replica is an operator whose only duty notes what happens to it.
type replica struct {
	*operatortest.Operator
	proxy    *clustertest.Proxy
	election leading.Election

	mu     sync.Mutex
	terms  []*duty       // in the order in which they were built
	hold   chan struct{} // while open, duties do not stop
	events *events
}

// events are what happened to all replicas of a test, in order.
type events struct {
	mu   sync.Mutex
	list []string
}

func (e *events) add(text string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.list = append(e.list, text)
}

func (e *events) all() []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.list)
}

// duty lives for one term.
type duty struct {
	client  k8s.Client
	running bool // guarded by replica.mu
}

// replica is made and not started; name stands in events.
func (s *site) replica(t *testing.T, name string, happened *events, link ...clustertest.Link) *replica {
	t.Helper()
	r := &replica{proxy: s.cluster.NewProxy(t, link...), events: happened, hold: make(chan struct{})}
	close(r.hold)
	probe := cell.Invoke(func(e leading.Election) { r.election = e })
	term := cell.Module("test.duty", "Notes what happens to it", cell.Hook("live", func(c k8s.Client) lifecycle.Hook {
		return r.hook(name, c)
	}))
	setup := operatortest.Setup{Process: []cell.Cell{probe}, Elector: leader.Cell}
	var err error
	r.Operator, err = setup.New(t, term, r.proxy.Kubeconfig(), "--k8s-namespace="+s.Namespace,
		"--leader-election-lease-duration="+s.leaseDuration.String(),
		"--leader-election-renew-deadline="+s.renewDeadline.String(),
		"--leader-election-retry-period="+retryPeriod.String(),
		"--leader-election-resource-lock-timeout="+s.requestTimeout.String())
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func (r *replica) hook(name string, c k8s.Client) lifecycle.Hook {
	d := &duty{client: c}
	return lifecycle.Funcs{
		OnStart: func(context.Context) error {
			r.mu.Lock()
			defer r.mu.Unlock()
			d.running, r.terms = true, append(r.terms, d)
			r.events.add(name + " begins")
			return nil
		},
		OnStop: func(context.Context) error {
			<-r.held()
			r.mu.Lock()
			defer r.mu.Unlock()
			d.running = false
			r.events.add(name + " ends")
			return nil
		},
	}
}

// takesItsTime has the duties of a replica not stop until release is called.
func (r *replica) takesItsTime() (release func()) {
	hold := make(chan struct{})
	r.mu.Lock()
	defer r.mu.Unlock()
	r.hold = hold
	return func() { close(hold) }
}

func (r *replica) held() chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.hold
}

func (r *replica) start() *replica {
	r.Run()
	return r
}

// stopping stops a replica in the background. The channel tells when it has stopped.
func (r *replica) stopping() (stopped <-chan struct{}) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		r.Stop()
	}()
	return done
}

// term is the duty that runs now, or nil, and how many there were.
func (r *replica) term() (d *duty, n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	n = len(r.terms)
	if n > 0 && r.terms[n-1].running {
		return r.terms[n-1], n
	}
	return nil, n
}

func (r *replica) leads() bool { d, _ := r.term(); return d != nil }

func (r *replica) identity() string { return r.election.Status().Identity }

var configMaps = corev1.SchemeGroupVersion.WithResource("configmaps")

// write is a write of a duty.
func (d *duty) write(t *testing.T, s *site) error {
	ctx := k8s.WithCause(t.Context(), &k8s.Cause{Rule: "test write"})
	_, err := d.client.Create(ctx, configMaps, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, GenerateName: "x-"}})
	return err
}

// leases are the requests for the lease that came through a replica's proxy,
// as verbs.
func (r *replica) leases(t *testing.T) []clustertest.Request {
	t.Helper()
	return slices.DeleteFunc(r.proxy.Requests(t, 0), func(q clustertest.Request) bool { return q.Resource != "leases" })
}

func count(requests []clustertest.Request, verb string) (n int) {
	for _, q := range requests {
		if q.Verb == verb {
			n++
		}
	}
	return n
}

// renewals are the writes of the lease that succeeded.
func renewals(requests []clustertest.Request) (n int) {
	for _, q := range requests {
		if q.Verb == "update" && q.Status == 200 {
			n++
		}
	}
	return n
}

func describe(requests []clustertest.Request) (text string) {
	for _, q := range requests {
		text += fmt.Sprintf("%s %s %d\n", q.Received.Format("05.000"), q.Verb, q.Status)
	}
	return text
}
