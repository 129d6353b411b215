// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package main

import (
	"context"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"

	v2 "github.com/skep-operator/skep/resources/api/v2"
	"github.com/skep-operator/skep/resources/clustertest"
	"github.com/skep-operator/skep/resources/operatortest"
)

const leaseName = "cilium-operator-resource-lock"

var notInNames = regexp.MustCompile(`[^a-z0-9]+`)

// world is a part of the shared cluster that one test has for itself: a
// namespace, with its lease, and all CiliumNodes.
type world struct {
	*clustertest.Cluster
	t         *testing.T
	namespace string
	core      kubernetes.Interface
	dynamic   dynamic.Interface
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := newWorldIn(t, clustertest.Shared(t))
	w.clear()
	return w
}

// newWorldIn is newWorld in a cluster that no other test uses.
func newWorldIn(t *testing.T, c *clustertest.Cluster) *world {
	t.Helper()
	namespace := notInNames.ReplaceAllString(strings.ToLower(t.Name()), "-")
	namespace = strings.Trim(namespace[max(0, len(namespace)-63):], "-") // as long as a name may be
	config := c.AdminConfig(t)
	config.QPS = -1
	w := &world{
		Cluster: c, t: t,
		namespace: namespace,
		core:      kubernetes.NewForConfigOrDie(config), dynamic: dynamic.NewForConfigOrDie(config),
	}
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: w.namespace}}
	if _, err := w.core.CoreV1().Namespaces().Create(t.Context(), ns, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
		t.Fatal(err)
	}
	return w
}

// clear removes what another test left.
func (w *world) clear() {
	w.t.Helper()
	err := w.dynamic.Resource(v2.CiliumNodeResource).DeleteCollection(w.t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		w.t.Fatal(err)
	}
}

// define creates the definitions of kinds, unless they are there, so that objects can be made before an operator runs.
func (w *world) define(kinds ...string) {
	w.t.Helper()
	operatortest.Define(w.t, w.AdminConfig(w.t), kinds...)
}

// follow calls see for everything that happens to a resource from a revision on,
// one at a time, without a gap, until the test ends.
func (w *world) follow(resource schema.GroupVersionResource, revision string, see func(watch.EventType, *unstructured.Unstructured)) {
	w.t.Helper()
	ctx, stop := context.WithCancel(context.WithoutCancel(w.t.Context()))
	done := make(chan struct{})
	w.t.Cleanup(func() { stop(); <-done })
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			if err := w.followOnce(ctx, resource, &revision, see); err != nil && ctx.Err() == nil {
				w.t.Errorf("the judge of %s misses events: %v", resource.Resource, err)
				return
			}
		}
	}()
}

// witness calls see for everything that there is of a resource, and then is follow.
func (w *world) witness(resource schema.GroupVersionResource, see func(watch.EventType, *unstructured.Unstructured)) {
	w.t.Helper()
	list := w.list(resource)
	for i := range list.Items {
		see(watch.Added, &list.Items[i])
	}
	w.follow(resource, list.GetResourceVersion(), see)
}

// revisionOf is when an object was written. Of all objects of a server, that is one
// order.
func revisionOf(u *unstructured.Unstructured) uint64 {
	revision, _ := strconv.ParseUint(u.GetResourceVersion(), 10, 64)
	return revision
}

// list is all of a resource, wherever.
func (w *world) list(resource schema.GroupVersionResource, selector ...string) *unstructured.UnstructuredList {
	w.t.Helper()
	var list *unstructured.UnstructuredList
	eventually(w.t, "the server lists "+resource.Resource, func() (ok bool) {
		var err error
		list, err = w.dynamic.Resource(resource).List(context.WithoutCancel(w.t.Context()), metav1.ListOptions{LabelSelector: strings.Join(selector, ",")})
		if err != nil && !apierrors.IsTooManyRequests(err) { // as it answers while a kind is new
			w.t.Fatal(err)
		}
		return err == nil
	})
	return list
}

// followOnce follows until the server ends the watch.
func (w *world) followOnce(ctx context.Context, resource schema.GroupVersionResource, revision *string, see func(watch.EventType, *unstructured.Unstructured)) error {
	watcher, err := w.dynamic.Resource(resource).Watch(ctx, metav1.ListOptions{ResourceVersion: *revision, AllowWatchBookmarks: true})
	if err != nil {
		return err
	}
	defer watcher.Stop()
	for e := range watcher.ResultChan() {
		object, ok := e.Object.(*unstructured.Unstructured)
		if !ok || e.Type == watch.Error {
			return fmt.Errorf("%v", e.Object)
		}
		*revision = object.GetResourceVersion()
		if e.Type != watch.Bookmark {
			see(e.Type, object)
		}
	}
	return nil
}

// run starts an operator as a user of that name, through a proxy of its own.
func (w *world) run(user string, env []string, args ...string) (*operator, *clustertest.Proxy) {
	w.t.Helper()
	proxy := w.NewProxy(w.t)
	kubeconfig := proxy.UserKubeconfig(w.t, user, "system:masters")
	args = append([]string{
		"--k8s-namespace=" + w.namespace, "--enable-ipv6=false", "--cluster-pool-ipv4-cidr=10.0.0.0/8",
	}, args...)
	return start(w.t, kubeconfig, env, args...), proxy
}

// addNode makes a CiliumNode as an agent does.
func (w *world) addNode(name string, podCIDRs ...string) {
	w.t.Helper()
	if _, err := w.makeNode(name, podCIDRs...); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) makeNode(name string, podCIDRs ...string) (*unstructured.Unstructured, error) {
	spec := map[string]any{}
	if len(podCIDRs) > 0 {
		cidrs := make([]any, len(podCIDRs))
		for i, c := range podCIDRs {
			cidrs[i] = c
		}
		spec["ipam"] = map[string]any{"podCIDRs": cidrs}
	}
	node := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "cilium.io/v2", "kind": "CiliumNode",
		"metadata": map[string]any{"name": name}, "spec": spec,
	}}
	return w.dynamic.Resource(v2.CiliumNodeResource).Create(w.t.Context(), node, metav1.CreateOptions{})
}

// addNodes makes nodes, all at the same time.
func (w *world) addNodes(prefix string, n int) {
	w.t.Helper()
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() {
			if _, err := w.makeNode(fmt.Sprintf("%s-%d", prefix, i)); err != nil {
				w.t.Error(err)
			}
		})
	}
	all.Wait()
}

// nodes are all CiliumNodes by name.
func (w *world) nodes() map[string]*unstructured.Unstructured {
	w.t.Helper()
	list := w.list(v2.CiliumNodeResource)
	nodes := map[string]*unstructured.Unstructured{}
	for i := range list.Items {
		nodes[list.Items[i].GetName()] = &list.Items[i]
	}
	return nodes
}

// ciliumNode is one CiliumNode. There may be many, or large ones, beside it.
func (w *world) ciliumNode(name string) *unstructured.Unstructured {
	w.t.Helper()
	u, err := w.dynamic.Resource(v2.CiliumNodeResource).Get(context.WithoutCancel(w.t.Context()), name, metav1.GetOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	return u
}

func podCIDRs(node *unstructured.Unstructured) []string {
	cidrs, _, _ := unstructured.NestedStringSlice(node.Object, "spec", "ipam", "podCIDRs")
	return cidrs
}

func nodeError(node *unstructured.Unstructured) string {
	text, _, _ := unstructured.NestedString(node.Object, "status", "ipam", "operator-status", "error")
	return text
}

// settled waits until every node has CIDRs or an error.
func (w *world) settled() {
	w.t.Helper()
	eventually(w.t, "every node has CIDRs or an error", func() bool {
		for _, n := range w.nodes() {
			if len(podCIDRs(n)) == 0 && nodeError(n) == "" {
				return false
			}
		}
		return true
	})
}

// served makes a node and waits until it has its CIDR: what came before it has
// been dealt with.
func (w *world) served(name string) {
	w.t.Helper()
	w.addNode(name)
	eventually(w.t, "node "+name+" has its CIDR", func() bool { return len(podCIDRs(w.ciliumNode(name))) > 0 })
}

func (w *world) lease() *coordinationv1.Lease {
	w.t.Helper()
	lease, err := w.core.CoordinationV1().Leases(w.namespace).Get(w.t.Context(), leaseName, metav1.GetOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	return lease
}

// requests are what the audit log has of some users since the last call, reads
// and writes of the lease and questions about permissions taken out.
type requests []clustertest.AuditEvent

func (w *world) requests(a *clustertest.Audit, users ...string) requests {
	w.t.Helper()
	var found requests
	for e := range a.Events(w.t) {
		for _, u := range users {
			if e.User.Username == u {
				found = append(found, e)
			}
		}
	}
	return found
}

func (r requests) which(keep func(clustertest.AuditEvent) bool) requests {
	var kept requests
	for _, e := range r {
		if keep(e) {
			kept = append(kept, e)
		}
	}
	return kept
}

func onLease(e clustertest.AuditEvent) bool { return e.ObjectRef.Resource == "leases" }

// writes are the mutating requests but those for the lease and Events.
func (r requests) writes() requests {
	return r.which(func(e clustertest.AuditEvent) bool {
		return e.Mutates() && !onLease(e) && e.ObjectRef.Resource != "events"
	})
}

// initialStates are the requests for the whole state of something: lists without
// the name of an object, watches with initial events.
func (r requests) initialStates() requests {
	return r.which(func(e clustertest.AuditEvent) bool {
		named := strings.Contains(e.RequestURI, "fieldSelector=metadata.name%3D")
		return e.Verb == "list" && !named || strings.Contains(e.RequestURI, "sendInitialEvents=true")
	})
}

func (r requests) String() string {
	var b strings.Builder
	for _, e := range r {
		fmt.Fprintf(&b, "%s %s %s %s → %d by %s\n", e.RequestReceivedTimestamp.Format(time.StampMicro), e.Verb, e.RequestURI,
			e.UserAgent, e.ResponseStatus.Code, e.User.Username)
	}
	return b.String()
}
