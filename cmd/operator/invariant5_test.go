// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	v2 "github.com/skep-operator/skep/resources/api/v2"
	"github.com/skep-operator/skep/resources/clustertest"
)

// eager makes an operator look for garbage all the time, and believe everything:
// nothing but what is under test keeps it from deleting.
var eager = []string{"--cilium-endpoint-gc-interval=1s", "--nodes-gc-interval=1s", "--sweep-max-share=1"}

// Nothing is deleted because it was not seen yet, whichever stream is late, and
// whether it has shown nothing or the half of it. Resources/sweep has the same with
// clocks that run fast, up to five minutes late.
func TestInvariant5NothingDeletedUnseen(t *testing.T) {
	for _, late := range []string{"pods", "nodes", "ciliumnodes", "ciliumendpoints"} {
		t.Run(late+" empty", func(t *testing.T) { newPopulation(t).withEmptyView(late) })
		t.Run(late+" half loaded", func(t *testing.T) { newPopulation(t).withHalfAView(late) })
	}
}

// population is a world with pods and Nodes, the endpoints and CiliumNodes of
// these, which are wanted, and garbage among them.
type population struct {
	*world
	audit  *clustertest.Audit
	wanted map[string]types.UID
	o      *operator
	proxy  *clustertest.Proxy
}

func newPopulation(t *testing.T) *population {
	w := newWorld(t)
	w.define("CiliumNode", "CiliumEndpoint")
	p := populationOf(w)
	p.clearAll()
	t.Cleanup(p.clearAll)
	return p
}

// populationOf is an empty population of a world that has the kinds.
func populationOf(w *world) *population {
	return &population{world: w, audit: w.Audit(w.t), wanted: map[string]types.UID{}, proxy: w.NewProxy(w.t)}
}

// clearAll removes what belongs to no namespace of a test.
func (p *population) clearAll() {
	p.t.Helper()
	ctx := context.WithoutCancel(p.t.Context()) // the test may have ended
	_ = p.core.CoreV1().Nodes().DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{})
	_ = p.dynamic.Resource(v2.CiliumNodeResource).DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{})
	namespaces, err := p.core.CoreV1().Namespaces().List(ctx, metav1.ListOptions{})
	if err != nil {
		p.t.Fatal(err)
	}
	for _, ns := range namespaces.Items {
		_ = p.dynamic.Resource(v2.CiliumEndpointResource).Namespace(ns.Name).DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{})
	}
}

func (p *population) start(args ...string) {
	p.t.Helper()
	args = append([]string{"--k8s-namespace=" + p.namespace, "--enable-ipv6=false", "--cluster-pool-ipv4-cidr=10.0.0.0/8"}, append(eager, args...)...)
	p.o = start(p.t, p.proxy.UserKubeconfig(p.t, "sweeper", "system:masters"), nil, args...)
}

func (p *population) pod(name string) metav1.OwnerReference {
	p.t.Helper()
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}}}
	var made *corev1.Pod
	eventually(p.t, "pod "+name+" is made", func() bool { // when the service account is there
		var err error
		made, err = p.core.CoreV1().Pods(p.namespace).Create(p.t.Context(), pod, metav1.CreateOptions{})
		return err == nil
	})
	return metav1.OwnerReference{APIVersion: "v1", Kind: "Pod", Name: name, UID: made.UID}
}

func (p *population) endpoint(name string, owners ...metav1.OwnerReference) types.UID {
	p.t.Helper()
	e := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "cilium.io/v2", "kind": "CiliumEndpoint", "metadata": map[string]any{"name": name}}}
	e.SetOwnerReferences(owners)
	made, err := p.dynamic.Resource(v2.CiliumEndpointResource).Namespace(p.namespace).Create(p.t.Context(), e, metav1.CreateOptions{})
	if err != nil {
		p.t.Fatal(err)
	}
	return made.GetUID()
}

func (p *population) removeEndpoint(name string) {
	p.t.Helper()
	if err := p.dynamic.Resource(v2.CiliumEndpointResource).Namespace(p.namespace).Delete(p.t.Context(), name, metav1.DeleteOptions{}); err != nil {
		p.t.Fatal(err)
	}
}

// ciliumNode creates a CiliumNode without a Node.
func (p *population) ciliumNode(name string) types.UID {
	p.t.Helper()
	made, err := p.makeNode(name)
	if err != nil {
		p.t.Fatal(err)
	}
	return made.GetUID()
}

func (p *population) node(name string) {
	p.t.Helper()
	if _, err := p.core.CoreV1().Nodes().Create(p.t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}); err != nil {
		p.t.Fatal(err)
	}
}

// populate makes n of each that are wanted: endpoints of pods, endpoints of
// CiliumNodes, CiliumNodes of Nodes.
func (p *population) populate(prefix string, n int) {
	p.t.Helper()
	for i := range n {
		name := fmt.Sprint(prefix, "-", i)
		p.node(name)
		p.wanted["ciliumnodes/"+name] = p.ciliumNode(name)
		p.wanted["ciliumendpoints/"+name] = p.endpoint(name, p.pod(name))
		owner := metav1.OwnerReference{APIVersion: "cilium.io/v2", Kind: "CiliumNode", Name: name, UID: p.wanted["ciliumnodes/"+name]}
		p.wanted["ciliumendpoints/host-"+name] = p.endpoint("host-"+name, owner)
	}
}

// there are the uids of all that is left.
func (p *population) there() map[string]types.UID {
	p.t.Helper()
	uids := map[string]types.UID{}
	for name, u := range p.nodes() {
		uids["ciliumnodes/"+name] = u.GetUID()
	}
	list, err := p.dynamic.Resource(v2.CiliumEndpointResource).Namespace(p.namespace).List(p.t.Context(), metav1.ListOptions{})
	if err != nil {
		p.t.Fatal(err)
	}
	for _, u := range list.Items {
		uids["ciliumendpoints/"+u.GetName()] = u.GetUID()
	}
	return uids
}

// garbage creates one unused object of each kind.
func (p *population) garbage(name string) {
	p.t.Helper()
	p.endpoint("garbage-" + name)
	p.ciliumNode("garbage-" + name)
}

// collected waits until garbage is gone.
func (p *population) collected(resource, name string) {
	p.t.Helper()
	p.o.until(resource+" garbage-"+name+" is gone", func() bool {
		_, there := p.there()[resource+"/garbage-"+name]
		return !there
	})
}

// refused waits until the operator has tried so often to delete what is not any
// more what it takes it for.
func (p *population) refused(resource, name string, times int) {
	p.t.Helper()
	p.o.until(fmt.Sprintf("%d deletes of %s %s were refused", times, resource, name), func() bool {
		n := 0
		for _, r := range p.proxy.Requests(p.t, 0) {
			if r.Verb == "delete" && r.Resource == resource && r.Name == name && r.Status == 409 {
				n++
			}
		}
		return n >= times
	})
}

// unharmed checks that all that is wanted is there, and that the operator deleted
// garbage alone.
func (p *population) unharmed() {
	p.t.Helper()
	there := p.there()
	for what, uid := range p.wanted {
		if there[what] != uid {
			p.t.Errorf("%s is wanted, and not there any more", what)
		}
	}
	wrong := p.requests(p.audit, "sweeper").which(func(e clustertest.AuditEvent) bool {
		return e.Verb == "delete" && e.Stored() && !strings.HasPrefix(e.ObjectRef.Name, "garbage-")
	})
	if len(wrong) > 0 {
		p.t.Errorf("deleted because it was not seen:\n%s", wrong)
	}
}

// withEmptyView lets an operator start while a stream shows nothing.
func (p *population) withEmptyView(late string) {
	p.populate("early", 6)
	p.garbage("a")
	held := p.proxy.HoldWatch(p.t, late, 0)
	p.start()
	for _, resource := range notHeldUpBy(late) {
		p.collected(resource, "a")
	}
	p.o.leads()
	p.populate("later", 6)
	p.unharmed()
	held.Remove(p.t)
	p.collected("ciliumnodes", "a")
	p.collected("ciliumendpoints", "a")
	p.garbage("b")
	p.collected("ciliumnodes", "b")
	p.collected("ciliumendpoints", "b")
	p.unharmed()
}

// notHeldUpBy are the resources that are swept though a stream shows nothing.
func notHeldUpBy(late string) []string {
	needs := map[string][]string{
		"ciliumnodes":     {"ciliumnodes", "nodes"},
		"ciliumendpoints": {"ciliumendpoints", "ciliumnodes", "pods"},
	}
	var free []string
	for resource, streams := range needs {
		if !slices.Contains(streams, late) {
			free = append(free, resource)
		}
	}
	return free
}

// withHalfAView holds a stream when it has shown the half of what there will be.
func (p *population) withHalfAView(late string) {
	p.populate("early", 6)
	p.garbage("a")
	moved := p.pod("moved")
	p.endpoint("moved", moved)
	p.node("moved")
	p.ciliumNode("moved")
	p.start()
	p.collected("ciliumnodes", "a")
	p.collected("ciliumendpoints", "a")

	held := p.proxy.HoldWatch(p.t, late, 0)
	p.populate("later", 6)
	p.move()
	if strings.HasPrefix(late, "cilium") { // what the operator takes for garbage tells that it has looked
		p.refused(late, "moved", 2)
	}
	for _, name := range []string{"b", "c"} { // two sweeps, one after the other
		p.garbage(name)
		for _, resource := range []string{"ciliumnodes", "ciliumendpoints"} {
			if resource != late {
				p.collected(resource, name)
			}
		}
	}
	p.unharmed()
	held.Remove(p.t)
	p.collected("ciliumnodes", "c")
	p.collected("ciliumendpoints", "c")
	p.unharmed()
}

// move makes an endpoint and a CiliumNode anew that were of a pod and a Node which
// are gone then: both are wanted.
func (p *population) move() {
	p.t.Helper()
	zero := int64(0)
	p.removeEndpoint("moved")
	p.wanted["ciliumendpoints/moved"] = p.endpoint("moved", p.pod("moved-on"))
	if err := p.core.CoreV1().Pods(p.namespace).Delete(p.t.Context(), "moved", metav1.DeleteOptions{GracePeriodSeconds: &zero}); err != nil {
		p.t.Fatal(err)
	}
	ciliumNodes := p.dynamic.Resource(v2.CiliumNodeResource)
	if err := ciliumNodes.Delete(p.t.Context(), "moved", metav1.DeleteOptions{}); err != nil {
		p.t.Fatal(err)
	}
	u := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "cilium.io/v2", "kind": "CiliumNode", "spec": map[string]any{},
		"metadata": map[string]any{"name": "moved", "annotations": map[string]any{"cilium.io/do-not-gc": "true"}},
	}}
	made, err := ciliumNodes.Create(p.t.Context(), u, metav1.CreateOptions{})
	if err != nil {
		p.t.Fatal(err)
	}
	p.wanted["ciliumnodes/moved"] = made.GetUID()
	if err := p.core.CoreV1().Nodes().Delete(p.t.Context(), "moved", metav1.DeleteOptions{}); err != nil {
		p.t.Fatal(err)
	}
}
