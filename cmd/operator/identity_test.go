// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	v2 "github.com/skep-operator/skep/resources/api/v2"
	"github.com/skep-operator/skep/resources/clustertest"
	"github.com/skep-operator/skep/runtime/seedtest"
)

// A restart with identities and slices makes no mutating call: what is written is what a
// pod costs that is new. The long form is at size S.
func TestInvariant1RestartWithIdentitiesAndSlices(t *testing.T) {
	// The load is what the garbage collector has to do with, too: nothing is garbage.
	args := []string{"--identity-management-mode=operator", "--enable-cilium-endpoint-slice"}
	for name, args := range map[string][]string{
		"fcfs":     append(slices.Clone(args), "--ces-slice-mode=fcfs"),
		"identity": append(slices.Clone(args), "--ces-slice-mode=identity"),
		"slim":     append(slices.Clone(args), "--ces-controller-mode=slim"),
	} {
		t.Run(name, func(t *testing.T) {
			load := clustertest.Load{Nodes: 100, Pods: 1000, Converged: true}
			if seedtest.Soak() {
				load = clustertest.Load{Size: "S", Converged: true}
			}
			w := newTenants(t, clustertest.Loaded(load))
			for w.node = range w.nodes() {
				break
			}
			first, _ := w.run("first", nil, args...)
			first.leads()
			w.allSliced()
			w.newPod("last-of-first")
			if code := first.stop(); code != 0 {
				t.Fatalf("exit code %d", code)
			}

			audit := w.Audit(t)
			second, _ := w.run("second", nil, args...)
			second.leads()
			w.newPod("sentinel")
			if code := second.stop(); code != 0 {
				t.Fatalf("exit code %d", code)
			}
			seen := w.requests(audit, "second")
			if len(seen) == 0 {
				t.Fatal("the audit log knows nothing of the restarted operator")
			}
			writes := seen.writes()
			made := func(resource string) int {
				return len(writes.which(func(e clustertest.AuditEvent) bool { return e.Verb == "create" && e.ObjectRef.Resource == resource }))
			}
			if len(writes) != 2 || made("ciliumidentities") != 1 || made("ciliumendpointslices") != 1 {
				t.Errorf("a new pod in a new namespace takes an identity and a slice, and these were written:\n%s", writes)
			}
		})
	}
}

// newPod makes a pod in a namespace of its own, and waits until it has an identity
// and is in a slice.
func (w *tenants) newPod(name string) {
	w.t.Helper()
	w.label(name, nil)
	uid := w.begin(name, name, map[string]string{"app": name})
	number := w.identityOf(name, w.pods[types.NamespacedName{Namespace: name, Name: name}])
	var id int64
	if _, err := fmt.Sscan(number, &id); err != nil {
		w.t.Fatal(err)
	}
	w.endpoint(name, name, uid, id, "10.255.0.1")
	w.runs(name, name, "10.255.0.1")
	eventually(w.t, name+" is in a slice", func() bool { return len(w.slicedIn()[name+"/"+name]) == 1 })
}

// allSliced waits until every endpoint is in one slice.
func (w *tenants) allSliced() {
	w.t.Helper()
	list := w.list(v2.CiliumEndpointResource)
	if len(list.Items) == 0 {
		w.t.Fatal("there are no endpoints: the test shows nothing")
	}
	in := 0
	eventually(w.t, fmt.Sprintf("%d endpoints are in slices", len(list.Items)), func() bool {
		in = len(w.slicedIn())
		return in == len(list.Items)
	})
}

// No number means two label sets, over any history of pods, namespaces with other
// labels, deletes by hand, crashes, stale caches and two leaders; and what is left
// in the end is one identity for each label set in use. The same in a model,
// thousands of times and with a crash at every write, is in cells/identity.
func TestInvariant4NoNumberMeansTwoLabelSets(t *testing.T) {
	length := 20 * time.Second
	if seedtest.Soak() {
		length = 10 * time.Minute
	}
	seed := seedtest.Seed(t)
	w := newTenants(t)
	w.define()
	registrar := w.registrar()
	operator := func(user string) (*operator, *clustertest.Proxy) {
		return w.run(user, nil, slices.Concat(quickLease, managed)...)
	}
	writes := clustertest.Match{Verbs: []string{"create", "delete", "update", "patch"}, Resources: []string{"ciliumidentities"}}
	h := newHistory(w.world, rand.New(rand.NewPCG(seed, 1)), operator, writes, "pods", "namespaces", "ciliumidentities")
	h.replicas[0].until("somebody leads", func() bool { return h.leader() >= 0 })
	ctx, stop := context.WithCancel(t.Context())
	var churn sync.WaitGroup
	churn.Go(func() { w.move(ctx, rand.New(rand.NewPCG(seed, 2))) })
	enough := func() bool { return registrar.count().deleted > 0 }
	for began := time.Now(); h.goesOn(began, length, enough); {
		h.harm()
		eventually(t, "somebody leads", func() bool { return h.leader() >= 0 })
		made := registrar.count().made
		eventually(t, "identities are made", func() bool { return registrar.count().made > made })
	}
	stop()
	churn.Wait()
	w.eachHasOne()
	t.Logf("harm done: %v; %s", h.done, registrar.count())
	if registrar.count().deleted == 0 {
		t.Error("no identity was deleted: the history shows nothing")
	}
}

// move lets pods come and go, and their namespaces change, until ctx ends.
func (w *tenants) move(ctx context.Context, r *rand.Rand) {
	for i := 0; ctx.Err() == nil; i++ {
		namespace := fmt.Sprint("tenant-", r.IntN(3))
		switch action := r.IntN(10); {
		case w.namespaces[namespace] == nil:
			w.label(namespace, nil)
		case action == 0:
			w.label(namespace, map[string]string{"team": fmt.Sprint(r.IntN(3))})
		case action == 1: // the user deletes an identity
			for number := range w.identities() {
				err := w.dynamic.Resource(v2.CiliumIdentityResource).Delete(w.ctx(), number, metav1.DeleteOptions{})
				if err != nil && !apierrors.IsNotFound(err) {
					w.t.Error(err)
				}
				break
			}
		case action < 5 && len(w.pods) > 10:
			for pod := range w.pods {
				w.end(pod.Namespace, pod.Name)
				break
			}
		default:
			w.begin(namespace, fmt.Sprint("pod-", i), map[string]string{"app": fmt.Sprint("app-", r.IntN(20))})
		}
		select {
		case <-ctx.Done():
		case <-time.After(time.Duration(r.IntN(100)) * time.Millisecond): // a pace, not a wait
		}
	}
}

// No identity is deleted, and no endpoint is taken out of its slice, because a
// stream is late: whether it has shown nothing, or the half of it.
func TestInvariant5NoIdentityOrSliceLostUnseen(t *testing.T) {
	byAgents := []string{
		"--enable-cilium-endpoint-slice", "--ces-slice-mode=fcfs", "--identity-gc-interval=1s", "--identity-heartbeat-timeout=2s",
		"--nodes-gc-interval=1s", "--sweep-max-share=1",
	}
	slim := slices.Concat(managed, []string{"--ces-controller-mode=slim", "--nodes-gc-interval=1s"})
	operator := append(slices.Clone(managed), "--nodes-gc-interval=1s")
	for i, test := range []struct {
		mode string
		args []string
		late string
	}{
		{"agents", byAgents, "ciliumendpoints"},
		{"agents", byAgents, "ciliumidentities"},
		{"operator", operator, "pods"},
		{"operator", operator, "ciliumendpointslices"},
		{"slim", slim, "namespaces"},
		{"slim", slim, "pods"},
		{"slim", slim, "ciliumidentities"},
		{"slim", slim, "ciliumendpointslices"},
		{"agents", byAgents, "ciliumendpointslices"},
		{"operator", operator, "namespaces"},
		{"operator", operator, "ciliumidentities"},
		{"operator", operator, "ciliumendpoints"},
	} {
		// All of them take ten minutes; the first six are those that differ most.
		for _, half := range []bool{false, true} {
			if !seedtest.Soak() && (i >= 6 || half == (i%2 == 0)) {
				continue
			}
			name := test.mode + ", " + test.late + " empty"
			if half {
				name = test.mode + ", " + test.late + " half loaded"
			}
			t.Run(name, func(t *testing.T) {
				t.Parallel() // each has a cluster of its own, and waits most of the time
				newLodgers(t, test.args).withLate(test.late, half)
			})
		}
	}
}

// lodgers are tenants who must not lose their identities and places in slices.
type lodgers struct {
	*tenants
	args   []string
	audit  *clustertest.Audit
	proxy  *clustertest.Proxy
	o      *operator
	count  int
	places *places
}

func newLodgers(t *testing.T, args []string) *lodgers {
	l := &lodgers{tenants: newTenants(t), args: args}
	l.define()
	l.node = "home"
	if _, err := l.core.CoreV1().Nodes().Create(l.ctx(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: l.node}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	l.addNode(l.node)
	l.label("lodgers", nil)
	l.places = l.watchPlaces()
	l.audit, l.proxy = l.Audit(t), l.NewProxy(t)
	return l
}

func (l *lodgers) start(user string) {
	l.t.Helper()
	args := append([]string{"--k8s-namespace=" + l.namespace, "--enable-ipv6=false", "--cluster-pool-ipv4-cidr=10.0.0.0/8"}, l.args...)
	l.o = start(l.t, l.proxy.UserKubeconfig(l.t, user, "system:masters"), nil, args...)
}

// moveIn makes n pods with labels of their own, each with the identity that an
// agent would have made, and an endpoint.
func (l *lodgers) moveIn(prefix string, n int) {
	l.t.Helper()
	for i := range n {
		l.count++
		name, number := fmt.Sprint(prefix, "-", i), int64(1000+l.count)
		labels, ip := map[string]string{"app": name}, fmt.Sprint("10.255.0.", l.count)
		l.identity(fmt.Sprint(number), l.set("lodgers", labels))
		uid := l.begin("lodgers", name, labels)
		l.runs("lodgers", name, ip)
		l.endpoint("lodgers", name, uid, number, ip)
	}
}

// garbage makes an identity that no pod has.
func (l *lodgers) garbage(number int) {
	l.t.Helper()
	l.identity(fmt.Sprint(number), l.set("lodgers", map[string]string{"app": fmt.Sprint("garbage-", number)}))
}

// withLate lets an operator work while a stream shows nothing, or nothing new.
func (l *lodgers) withLate(late string, half bool) {
	l.moveIn("early", 5)
	l.garbage(2000)
	if half {
		l.start("sweeper")
		l.gone(2000)
		l.sliced()
		l.proxy.HoldWatch(l.t, late, 0)
		l.moveIn("later", 5)
		l.passes()
	} else {
		held := l.proxy.HoldWatch(l.t, late, 0)
		l.start("sweeper")
		l.o.leads()
		l.moveIn("later", 5)
		l.passes()
		held.Remove(l.t)
		l.gone(2000)
		l.sliced()
	}
	l.proxy.Heal(l.t)
	l.garbage(2001)
	l.gone(2001)
	l.sliced()
	l.unharmed()
}

// passes lets so much time pass that garbage would be deleted: unused CiliumNodes
// are.
func (l *lodgers) passes() {
	l.t.Helper()
	for i := range 3 {
		name := fmt.Sprint("clock-", l.count, "-", i)
		l.addNode(name)
		l.o.until("CiliumNode "+name+" is gone", func() bool { return l.nodes()[name] == nil })
	}
}

// gone waits until an unused identity is deleted.
func (l *lodgers) gone(number int) {
	l.t.Helper()
	l.o.until(fmt.Sprintf("identity %d is gone", number), func() bool { return l.identities()[fmt.Sprint(number)] == "" })
}

// sliced waits until every pod is in one slice.
func (l *lodgers) sliced() {
	l.t.Helper()
	var in map[string][]string
	defer func() {
		if l.t.Failed() {
			l.t.Log(in)
		}
	}()
	l.o.until("all are in slices", func() bool {
		in = l.slicedIn()
		for pod := range l.pods {
			if len(in[pod.String()]) != 1 {
				return false
			}
		}
		return len(in) == len(l.pods)
	})
}

// unharmed checks that no tenant has lost an identity or a place.
func (l *lodgers) unharmed() {
	l.t.Helper()
	wrong := l.requests(l.audit, "sweeper").which(func(e clustertest.AuditEvent) bool {
		garbage := strings.HasPrefix(e.ObjectRef.Name, "200")
		return e.Verb == "delete" && e.Stored() && e.ObjectRef.Resource == "ciliumidentities" && !garbage
	})
	if len(wrong) > 0 {
		l.t.Errorf("deleted because it was not seen:\n%s", wrong)
	}
	if lost := l.places.losses(); len(lost) > 0 {
		l.t.Errorf("in no slice any more:\n%v", lost)
	}
}
