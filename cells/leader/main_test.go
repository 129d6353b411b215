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
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/skep-operator/skep/cells/leader"
	"github.com/skep-operator/skep/resources/cluster"
	"github.com/skep-operator/skep/resources/clustertest"
	"github.com/skep-operator/skep/resources/k8s"
	"github.com/skep-operator/skep/runtime/cell"
	"github.com/skep-operator/skep/runtime/hive"
	"github.com/skep-operator/skep/runtime/lifecycle"
	"github.com/skep-operator/skep/runtime/logging/logtest"
	"github.com/skep-operator/skep/runtime/waittest"
)

func TestMain(m *testing.M) { waittest.Main(clustertest.Wrap(m)) }

const (
	leaseName     = "cilium-operator-resource-lock"
	leaseDuration = 4 * time.Second
	renewDeadline = 3 * time.Second
	retryPeriod   = 500 * time.Millisecond
)

// site is a cluster in which replicas compete for a lease.
type site struct {
	cluster   *clustertest.Cluster
	admin     *kubernetes.Clientset
	namespace string

	leaseDuration, renewDeadline time.Duration
}

func newSite(t *testing.T) *site {
	t.Helper()
	s := &site{cluster: clustertest.Shared(t), leaseDuration: leaseDuration, renewDeadline: renewDeadline}
	transport, err := rest.HTTPClientFor(s.cluster.AdminConfig(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(transport.CloseIdleConnections)
	s.admin, err = kubernetes.NewForConfigAndClient(s.cluster.AdminConfig(t), transport)
	if err != nil {
		t.Fatal(err)
	}
	ns, err := s.admin.CoreV1().Namespaces().Create(t.Context(),
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "test-"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	s.namespace = ns.Name
	return s
}

func (s *site) lease(t *testing.T) *coordinationv1.Lease {
	t.Helper()
	l, err := s.admin.CoordinationV1().Leases(s.namespace).Get(t.Context(), leaseName, metav1.GetOptions{})
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
	hive     *hive.Hive
	proxy    *clustertest.Proxy
	election k8s.Election
	log      *logtest.Buffer

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
	r := &replica{proxy: s.cluster.NewProxy(t, link...), log: &logtest.Buffer{}, events: happened, hold: make(chan struct{})}
	close(r.hold)
	probe := cell.Invoke(func(e k8s.Election) { r.election = e })
	term := cell.Module("test.duty", "Notes what happens to it", cell.Hook("live", func(c k8s.Client) lifecycle.Hook {
		return r.hook(name, c)
	}))
	r.hive = hive.New("operator", cell.Set(cluster.Cell(cluster.DefaultConfig), k8s.Cell, leader.Cell, probe, cell.Term("leader", term)),
		hive.LogTo(r.log), hive.Environ(func(string) (string, bool) { return "", false }))
	flags := r.hive.FlagSet()
	err := flags.Parse([]string{
		"--k8s-kubeconfig-path=" + r.proxy.Kubeconfig(), "--k8s-namespace=" + s.namespace,
		"--leader-election-lease-duration=" + s.leaseDuration.String(),
		"--leader-election-renew-deadline=" + s.renewDeadline.String(),
		"--leader-election-retry-period=" + retryPeriod.String(),
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := r.hive.Configure(flags); err != nil {
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

func (r *replica) start(t *testing.T) *replica {
	t.Helper()
	if err := r.hive.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.stop(t) })
	return r
}

func (r *replica) stop(t *testing.T) {
	if err := r.hive.Stop(context.Background()); err != nil {
		t.Errorf("stop: %v\n%s", err, r.log)
	}
}

// stopping stops a replica in the background. The channel tells when it has stopped.
func (r *replica) stopping(t *testing.T) (stopped <-chan struct{}) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		r.stop(t)
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
	_, err := d.client.Create(ctx, configMaps, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, GenerateName: "x-"}})
	return err
}

// until waits for a state.
var until = waittest.Until

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
