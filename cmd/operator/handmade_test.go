// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/utils/ptr"

	v2 "github.com/skep-operator/skep/resources/api/v2"
	"github.com/skep-operator/skep/resources/api/v2alpha1"
	"github.com/skep-operator/skep/runtime/waittest"
)

// The user writes objects by hand, of every kind that a duty reads, in every known odd way:
// while no replica leads, while one does, and all of it exists when the next one starts. The
// CRDs are lax, so that the server stores everything. Whatever is written, the operator stays
// up and serves the other objects; no pod CIDR is allocated that a node has or claims; no
// endpoint loses its slice and nothing in use is deleted; and a duty names what it cannot
// read. When the odd objects are deleted, all is well.
//
// Which kinds these are is told by the role that the operator asks for: a kind without odd
// values fails the test.
func TestObjectsByHand(t *testing.T) {
	h := newHandwork(t)
	h.populate()
	h.start("first")
	h.enlist()
	h.took("healthy objects")
	h.stop()

	h.do(before, func(o oddity) bool { return !o.opaque })
	h.start("second")
	h.stands(served)
	h.took("odd objects at the start")
	h.do(while, func(oddity) bool { return true })
	h.stands(served)
	h.took("odd objects while it runs")
	h.stop()

	h.start("third")
	h.stands(unlessOpaque)
	h.took("all of them at the next start")
	h.remove(func(m *handmade) bool { return m.opaque })
	h.stands(served)
	h.took("without what cannot be read at all")
	h.clearUp()
	h.took("without odd objects")
}

// When an object is written by hand.
const (
	before = "before"
	while  = "while"
)

// handwork is a cluster in which the user writes by hand.
type handwork struct {
	*tenants
	args   []string
	o      *operator
	places *places
	all    []*handmade
	began  time.Time // a part of the test
	plain  int       // numbers what is as it should be
	other  string
	spare  []string        // definitions that odd things are done to
	found  map[string]bool // what has been found wrong

	mu    sync.Mutex
	needs map[types.UID]needed                // what must stay
	odd   map[types.UID]bool                  // nodes that are written by hand
	names map[types.UID]string                // of nodes
	held  map[types.UID]map[netip.Prefix]bool // all that nodes have or had, or claim
	addrs map[types.UID]string                // of Services
}

// needed is what an object is, and the node or the pod that needs it.
type needed struct{ what, by string }

// handmade is an object that is healthy until something odd is done to it.
type handmade struct {
	oddity
	resource  schema.GroupVersionResource
	when      string
	namespace string
	name      string // of the object itself, once it is known
	pod       types.NamespacedName
	done      int // length of the log when it was; 0 is: not
}

func (m *handmade) String() string {
	return fmt.Sprintf("%s %s/%s (%s)", m.resource.Resource, m.namespace, m.name, m.what)
}

// handPool are the CIDRs of the cluster.
var handPool = netip.MustParsePrefix("10.0.0.0/16")

func newHandwork(t *testing.T) *handwork {
	h := &handwork{
		began: time.Now(), tenants: newTenants(t), other: "other", found: map[string]bool{},
		needs: map[types.UID]needed{}, odd: map[types.UID]bool{}, names: map[types.UID]string{}, held: map[types.UID]map[netip.Prefix]bool{}, addrs: map[types.UID]string{},
	}
	h.args = slices.Concat([]string{"--k8s-namespace=" + h.namespace, "--enable-ipv6=false", "--cluster-pool-ipv4-cidr=" + handPool.String()}, managed, eager,
		[]string{"--enable-local-redirect-policy", "--enable-ipv4-egress-gateway"}) // more definitions
	newGroups(t).set(handGroup, handMember)
	h.define()
	h.relax()
	h.places = h.watchPlaces()
	h.witness(v2.CiliumNodeResource, h.judge)
	h.witness(services, h.judgeService)
	mourned := []schema.GroupVersionResource{
		v2.CiliumNodeResource, v2.CiliumEndpointResource, v2.CiliumIdentityResource, v2.CiliumNetworkPolicyResource, v2.CiliumClusterwideNetworkPolicyResource,
	}
	for _, resource := range mourned {
		h.witness(resource, h.mourn)
	}
	return h
}

// relax lets the server store anything in the kinds that the operator reads.
func (h *handwork) relax() {
	h.t.Helper()
	h.world.relax(
		"CiliumNode", "CiliumEndpoint", "CiliumIdentity", "CiliumEndpointSlice", "CiliumLoadBalancerIPPool", "CiliumNetworkPolicy", "CiliumClusterwideNetworkPolicy", "CiliumCIDRGroup",
	)
}

// relax lets the server store anything in some kinds.
func (w *world) relax(kinds ...string) {
	w.t.Helper()
	for _, kind := range kinds {
		name := definitionName(w.t, kind)
		eventually(w.t, kind+" is lax", func() bool {
			u, err := w.dynamic.Resource(definitions).Get(w.t.Context(), name, metav1.GetOptions{})
			if err != nil {
				w.t.Fatal(err)
			}
			versions, _, _ := unstructured.NestedSlice(u.Object, "spec", "versions")
			for _, v := range versions {
				v.(map[string]any)["schema"] = map[string]any{"openAPIV3Schema": map[string]any{"type": "object", "x-kubernetes-preserve-unknown-fields": true}}
			}
			_ = unstructured.SetNestedSlice(u.Object, versions, "spec", "versions")
			_, err = w.dynamic.Resource(definitions).Update(w.t.Context(), u, metav1.UpdateOptions{})
			return err == nil
		})
	}
}

// reads are the resources that the operator reads, by the role that it asks for.
func (h *handwork) reads() []string {
	h.t.Helper()
	reads := map[string]bool{}
	for _, rule := range h.leastRole("reader", h.args...).Rules {
		if slices.ContainsFunc(rule.Verbs, func(v string) bool { return v == "get" || v == "list" || v == "watch" }) {
			for _, resource := range rule.Resources {
				if resource != "configmaps" { // of the cells of these tests
					reads[resource] = true
				}
			}
		}
	}
	return slices.Sorted(maps.Keys(reads))
}

// populate makes a healthy object for each that will be odd.
func (h *handwork) populate() {
	h.t.Helper()
	h.addNodeWithNode(h.other)
	h.addNodeWithNode(always)
	h.node = always
	h.label(home, nil)
	h.makePool(plainPool, "10.88.0.0/16")
	h.makeService(h.other)
	for _, resource := range append(h.reads(), agentPods) {
		if oddities[resource] == nil {
			h.t.Errorf("the operator reads %s, of which no odd values are known: add them to oddities", resource)
		}
		for _, when := range []string{before, while} {
			for i, o := range slices.Concat(oddities[resource], onAnything) {
				name := fmt.Sprintf("%s-%s-%d", when, resource, i)
				m := &handmade{oddity: o, when: when, name: name}
				switch resource {
				case "ciliumnodes", "nodes":
					m.resource = v2.CiliumNodeResource
					if resource == "nodes" {
						m.resource = corev1.SchemeGroupVersion.WithResource("nodes")
					}
					h.addNodeWithNode(name)
				case "pods", "ciliumendpoints", "ciliumidentities":
					h.lodge(m, home, name)
					m.resource = map[string]schema.GroupVersionResource{
						"pods": corev1.SchemeGroupVersion.WithResource("pods"), "ciliumendpoints": v2.CiliumEndpointResource, "ciliumidentities": v2.CiliumIdentityResource,
					}[resource]
				case "services":
					m.resource, m.namespace = services, h.namespace
					h.makeService(name)
				case "ciliumloadbalancerippools":
					m.resource = v2.CiliumLoadBalancerIPPoolResource
					h.makePool(name, fmt.Sprintf("10.89.%d.0/24", len(h.all)%256))
				case "ciliumcidrgroups":
					m.resource = v2.CiliumCIDRGroupResource
					h.makeCIDRGroup(name)
				case "ciliumnetworkpolicies", "ciliumclusterwidenetworkpolicies":
					if (when == before) != (i%2 == 0) != (resource == "ciliumnetworkpolicies") {
						continue // a value is odd for one kind at the start, and for the other later
					}
					m.resource = v2.SchemeGroupVersion.WithResource(resource)
					m.namespace = h.namespaceOf(m.resource)
					h.makePolicy(m.resource, name)
				case agentPods:
					m.resource, m.namespace = corev1.SchemeGroupVersion.WithResource("pods"), h.namespace
					h.addNodeWithNode("node-" + name)
					m.name = h.makeAgent("node-" + name)
				case "namespaces", "ciliumendpointslices":
					if resource == "namespaces" && o.deletes {
						continue // the cluster would delete all that is in it
					}
					h.label(name, nil)
					h.lodge(m, name, name)
					m.namespace, m.resource = "", corev1.SchemeGroupVersion.WithResource("namespaces")
					if resource == "ciliumendpointslices" {
						m.resource = v2alpha1.CiliumEndpointSliceResource
					}
				case "customresourcedefinitions":
					if (when == before) != (i%2 == 0) {
						continue // there are not so many
					}
					m.resource = definitions
				default:
					continue // leases have a test of their own
				}
				h.all = append(h.all, m)
			}
		}
	}
}

// makeCIDRGroup makes a CIDR group of a user.
func (h *handwork) makeCIDRGroup(name string) {
	h.t.Helper()
	_, err := h.dynamic.Resource(v2.CiliumCIDRGroupResource).Create(h.ctx(), &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": v2.SchemeGroupVersion.String(), "kind": "CiliumCIDRGroup", "metadata": map[string]any{"name": name},
		"spec": map[string]any{"externalCIDRs": []any{"192.0.2.0/24"}},
	}}, metav1.CreateOptions{})
	if err != nil {
		h.t.Fatal(err)
	}
}

// unused are the definitions that the operator has registered, of kinds that no duty reads.
func (h *handwork) unused() (names []string) {
	h.t.Helper()
	reads := h.reads()
	for _, u := range h.list(definitions).Items {
		plural, group, _ := strings.Cut(u.GetName(), ".")
		if group == v2.GroupName && !slices.Contains(reads, plural) {
			names = append(names, u.GetName())
		}
	}
	return names
}

// addNodeWithNode makes a Node and its CiliumNode, which is needed.
func (h *handwork) addNodeWithNode(name string) {
	h.t.Helper()
	if _, err := h.core.CoreV1().Nodes().Create(h.ctx(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}); err != nil {
		h.t.Fatal(err)
	}
	made, err := h.makeNode(name)
	if err != nil {
		h.t.Fatal(err)
	}
	h.need(made.GetUID(), "CiliumNode "+name, name)
}

// lodge makes a pod for an object that is about pods.
func (h *handwork) lodge(m *handmade, namespace, name string) {
	m.namespace, m.pod = namespace, types.NamespacedName{Namespace: namespace, Name: name}
	h.begin(namespace, name, map[string]string{"app": name})
}

func (h *handwork) start(user string) {
	h.t.Helper()
	h.forget()
	h.o = start(h.t, h.NewProxy(h.t).UserKubeconfig(h.t, user, "system:masters"), nil, h.args...)
	for _, m := range h.all {
		m.done = min(m.done, 1) // its log is new
	}
	h.o.leads()
}

// forget drops what odd nodes had before it was removed from their objects while no operator
// was running: the next one cannot know of it.
func (h *handwork) forget() {
	h.t.Helper()
	nodes := h.nodes()
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, u := range nodes {
		if !h.odd[u.GetUID()] {
			continue
		}
		h.held[u.GetUID()] = map[netip.Prefix]bool{}
		for _, claim := range claims(u) {
			h.held[u.GetUID()][claim] = true
		}
	}
}

func (h *handwork) stop() {
	h.t.Helper()
	if code := h.o.stop(); code != 0 {
		h.t.Errorf("exit code %d", code)
	}
}

// enlist waits until everything is served, and learns the names of what the operator made.
func (h *handwork) enlist() {
	h.t.Helper()
	h.settled()
	h.o.until("every Service has an address", func() bool {
		return !slices.ContainsFunc(h.all, func(m *handmade) bool { return m.resource == services && !h.hasAddress(m.name) }) && h.hasAddress(h.other)
	})
	for _, m := range h.all {
		if policyKinds[m.resource] != "" && !m.frees {
			h.needDerived(m.resource, m.name)
		}
	}
	var numbers map[string]string
	h.o.until("every pod has an identity", func() bool {
		numbers = h.numbersBySet()
		return !slices.ContainsFunc(h.wanted(), func(set string) bool { return numbers[set] == "" })
	})
	uids := map[string]types.UID{}
	for _, i := range h.list(v2.CiliumIdentityResource).Items {
		uids[i.GetName()] = i.GetUID()
	}
	ip, agents := 0, atOnce()
	for pod, labels := range h.pods {
		number := numbers[written(h.set(pod.Namespace, labels))]
		h.need(uids[number], "identity "+number, pod.String())
		ip++
		address := fmt.Sprintf("10.254.%d.%d", ip/250, ip%250+1)
		agents.Go(func() error { return h.tell(pod, number, address) })
	}
	if err := agents.Wait(); err != nil {
		h.t.Fatal(err)
	}
	h.o.until("every endpoint is in a slice", func() bool { return len(h.slicedIn()) == len(h.pods) })
	in, odd := h.slicedIn(), 0
	if h.spare = h.unused(); len(h.spare) < 3 {
		h.t.Fatalf("all kinds are read but %q", h.spare)
	}
	for _, m := range h.all {
		switch m.resource {
		case v2.CiliumIdentityResource:
			m.namespace, m.name = "", numbers[written(h.set(m.pod.Namespace, h.pods[m.pod]))]
		case v2alpha1.CiliumEndpointSliceResource:
			m.name = in[m.pod.String()][0]
		case definitions:
			// There are fewer than odd values: each gets several, one after the other, but for the first, which is deleted.
			if m.name = h.spare[0]; !m.deletes {
				m.name = h.spare[1+odd%(len(h.spare)-1)]
				odd++
			}
		}
	}
}

// atOnce is a group of requests, of which some run at a time.
func atOnce() *errgroup.Group {
	g := &errgroup.Group{}
	g.SetLimit(8)
	return g
}

// tell is what the agent tells about a pod.
func (h *handwork) tell(pod types.NamespacedName, number, ip string) error {
	owner, err := h.core.CoreV1().Pods(pod.Namespace).Get(h.ctx(), pod.Name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	id, err := strconv.ParseInt(number, 10, 64)
	if err != nil {
		return fmt.Errorf("the identity of %s: %w", pod, err)
	}
	h.need(h.endpoint(pod.Namespace, pod.Name, owner.UID, id, ip), "CiliumEndpoint "+pod.String(), pod.String())
	return nil
}

// do writes by hand what is due.
func (h *handwork) do(when string, which func(oddity) bool) {
	h.t.Helper()
	for _, m := range h.all {
		if m.when == when && which(m.oddity) {
			h.write(m)
		}
	}
}

func (h *handwork) write(m *handmade) {
	h.t.Helper()
	m.done = 1
	if h.o.running() {
		m.done = max(1, len(h.o.log.String()))
	}
	client := h.client(m)
	patch := []byte(h.filled(m))
	h.places.byHand(func() (mark string) {
		u, err := client.Patch(h.ctx(), m.name, types.MergePatchType, patch, metav1.PatchOptions{})
		if err == nil && strings.Contains(m.patch, `"status":`) {
			if with, subErr := client.Patch(h.ctx(), m.name, types.MergePatchType, patch, metav1.PatchOptions{}, "status"); subErr == nil {
				u = with
			} else if !apierrors.IsNotFound(subErr) {
				err = subErr
			}
		}
		if err == nil && m.deletes {
			err = client.Delete(h.ctx(), m.name, metav1.DeleteOptions{GracePeriodSeconds: ptr.To(int64(0))})
		}
		if err != nil {
			h.t.Errorf("%s: %v", m, err)
			return ""
		}
		return u.GetResourceVersion()
	})
}

func (h *handwork) client(m *handmade) dynamic.ResourceInterface {
	return h.dynamic.Resource(m.resource).Namespace(m.namespace)
}

// filled is the patch of an oddity, for an object.
func (h *handwork) filled(m *handmade) string {
	h.t.Helper()
	patch := m.enlarged()
	if m.resource == definitions {
		u, err := h.client(m).Get(h.ctx(), m.name, metav1.GetOptions{})
		if err != nil {
			h.t.Fatal(err)
		}
		stored, _, _ := unstructured.NestedStringSlice(u.Object, "status", "storedVersions")
		patch = strings.ReplaceAll(patch, "$VERSION", stored[0])
	}
	if m.resource == services {
		h.markOdd(m)
		return strings.ReplaceAll(patch, "$OTHER", h.addressOf(h.other))
	}
	if m.resource != v2.CiliumNodeResource {
		return patch
	}
	u := h.ciliumNode(m.name)
	h.mu.Lock()
	h.odd[u.GetUID()] = true
	h.mu.Unlock()
	if !strings.Contains(patch, "$") {
		return patch
	}
	cidr := netip.MustParsePrefix(podCIDRs(u)[0])
	return strings.NewReplacer(
		"$CIDR", cidr.String(), "$NET", cidr.Addr().String(), "$BITS", fmt.Sprint(cidr.Bits()), "$HOST", cidr.Addr().Next().String(),
		"$NEXT", netip.PrefixFrom(cidr.Addr(), cidr.Bits()-1).Masked().String(), "$OTHER", podCIDRs(h.ciliumNode(h.other))[0],
	).Replace(patch)
}

// service is what the operator is expected to do for others.
type service bool

const (
	served       service = true
	unlessOpaque service = false // new nodes may have to wait while a claim cannot be read at all
)

// stands checks what must hold whatever was written.
func (h *handwork) stands(nodes service) {
	h.t.Helper()
	h.o.leads()
	h.plain++
	name := fmt.Sprint("plain-", h.plain)
	h.addNodeWithNode(name)
	h.newPod(name)
	h.makeService(name)
	h.makeAgent(name)
	for resource := range policyKinds {
		h.makePolicy(resource, name)
		h.needDerived(resource, name)
	}
	h.o.until("a plain Service has an address, and the node of an agent no taint", func() bool { return h.hasAddress(name) && h.isReady(name) })
	if nodes == served {
		h.o.until("a plain node is served", func() bool { return len(podCIDRs(h.ciliumNode(name))) == 1 })
	}
	h.areNamed()
	h.lostNothing()
	if n := h.o.log.Count("panicked"); n > 0 {
		h.t.Error("the operator has panicked")
	}
}

// took tells how long a part of the test took.
func (h *handwork) took(part string) {
	h.t.Helper()
	h.t.Logf("%s: %s", part, time.Since(h.began).Round(time.Millisecond))
	h.began = time.Now()
}

// areNamed waits until all are named that a duty cannot read.
func (h *handwork) areNamed() {
	h.t.Helper()
	due := slices.DeleteFunc(slices.Clone(h.all), func(m *handmade) bool { return !m.named || m.done == 0 || h.found[m.String()] })
	unnamed, last := due, "known at once"
	began := time.Now()
	for deadline := began.Add(waittest.Limit); ; time.Sleep(250 * time.Millisecond) { // between looks
		if unnamed = h.unnamed(unnamed); len(unnamed) == 0 {
			unnamed = h.unnamed(due) // all at one time
		}
		if len(unnamed) == 0 {
			h.t.Logf("all are named after %s, the last ones: %s", time.Since(began).Round(time.Millisecond), last)
			return
		}
		if last = fmt.Sprint(unnamed); time.Now().After(deadline) {
			h.t.Errorf("%d objects are named nowhere: %s", len(unnamed), last)
			for _, m := range unnamed {
				h.found[m.String()] = true
			}
			return
		}
	}
}

// unnamed are those that are named nowhere: in no warning since they were written, nor in the operator's health, on the
// object, or in an Event.
func (h *handwork) unnamed(of []*handmade) []*handmade {
	h.t.Helper()
	warnings := h.warnings()
	s, _ := h.o.status()
	health := s.degraded()
	events := sync.OnceValue(h.namedByEvents)
	return slices.DeleteFunc(slices.Clone(of), func(m *handmade) bool {
		word := regexp.MustCompile(`(^|[^A-Za-z0-9.-])` + regexp.QuoteMeta(m.name) + `($|[^A-Za-z0-9.-])`)
		return slices.ContainsFunc(warnings, func(w warning) bool {
			return w.end >= m.done && strings.Contains(w.line, m.name) && word.MatchString(w.line)
		}) || word.MatchString(health) || events()[m.name] || h.reported(m)
	})
}

// warning is a line of the operator's log, and where in the log it ends.
type warning struct {
	line string
	end  int
}

func (h *handwork) warnings() (all []warning) {
	at := 0
	for line := range strings.SplitSeq(h.o.log.String(), "\n") {
		at += len(line)
		if strings.Contains(line, "level=warning") || strings.Contains(line, "level=error") {
			all = append(all, warning{line, at})
		}
		at++
	}
	return all
}

// namedByEvents are the names of the objects of which there are Events.
func (h *handwork) namedByEvents() map[string]bool {
	h.t.Helper()
	events, err := h.core.CoreV1().Events("").List(h.ctx(), metav1.ListOptions{})
	if err != nil {
		h.t.Fatal(err)
	}
	named := map[string]bool{}
	for _, e := range events.Items {
		named[e.InvolvedObject.Name] = true
	}
	return named
}

// lostNothing checks that no endpoint has left its slice unless it was removed by hand.
func (h *handwork) lostNothing() {
	h.t.Helper()
	may := map[string]bool{}
	for _, m := range h.all {
		if m.done > 0 && m.leaves {
			may[m.pod.String()] = true
		}
	}
	for _, l := range h.places.losses() {
		namespace, name, _ := strings.Cut(l.endpoint, "/") // or what the user wrote into a slice
		if h.pods[types.NamespacedName{Namespace: namespace, Name: name}] != nil && !may[l.endpoint] && !h.found[l.endpoint] {
			h.found[l.endpoint] = true
			h.t.Errorf("endpoint %s was taken out of all slices", l)
		}
	}
}

// remove deletes the odd objects that match, and what belongs to them.
func (h *handwork) remove(which func(*handmade) bool) {
	h.t.Helper()
	deletes := atOnce()
	deleted := map[string]bool{} // several odd things are done to one definition
	for _, m := range h.all {
		if m.done == 0 || !which(m) {
			continue
		}
		h.mu.Lock()
		maps.DeleteFunc(h.needs, func(_ types.UID, n needed) bool { return n.by == m.name || n.by == m.pod.String() })
		h.mu.Unlock()
		m.done = 0
		delete(h.pods, m.pod)
		if m.resource == definitions && deleted[m.name] {
			continue
		}
		deleted[m.name] = true
		if m.resource == definitions {
			h.hasStorage(m.name)
		}
		deletes.Go(func() error {
			if err := h.delete(m); err != nil {
				return fmt.Errorf("removing %s: %w", m, err)
			}
			return nil
		})
	}
	if err := deletes.Wait(); err != nil {
		h.t.Error(err)
	}
}

// delete deletes an odd object, and the pod or the Node that it is about.
func (h *handwork) delete(m *handmade) error {
	now := metav1.DeleteOptions{GracePeriodSeconds: ptr.To(int64(0))}
	var errs []error
	note := func(err error) {
		if err != nil && !apierrors.IsNotFound(err) {
			errs = append(errs, err)
		}
	}
	if m.pod.Name != "" {
		note(h.core.CoreV1().Pods(m.pod.Namespace).Delete(h.ctx(), m.pod.Name, now))
	}
	if m.resource == v2.CiliumNodeResource {
		note(h.core.CoreV1().Nodes().Delete(h.ctx(), m.name, metav1.DeleteOptions{}))
	}
	if m.resource.Resource != "namespaces" {
		note(h.release(m))
		note(h.client(m).Delete(h.ctx(), m.name, now))
	}
	return errors.Join(errs...)
}

// release removes finalizers but the API server's own.
func (h *handwork) release(m *handmade) error {
	u, err := h.client(m).Get(h.ctx(), m.name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	own := slices.DeleteFunc(u.GetFinalizers(), func(f string) bool { return f != apiextensionsv1.CustomResourceCleanupFinalizer })
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"finalizers": own}})
	if err != nil {
		return err
	}
	_, err = h.client(m).Patch(h.ctx(), m.name, types.MergePatchType, patch, metav1.PatchOptions{})
	return err
}

// hasStorage waits until the API server lists the objects of a definition, unless it is being deleted. The API server makes
// their storage at the first request. If that is the clean-up of a definition that is deleted, the storage is not ready, the
// clean-up fails, does not try again, since its report of that conflicts with what it has cached, and the definition stays
// until informers resync: five minutes.
func (h *handwork) hasStorage(definition string) {
	h.t.Helper()
	eventually(h.t, definition+" has storage", func() bool {
		u, err := h.dynamic.Resource(definitions).Get(h.ctx(), definition, metav1.GetOptions{})
		if apierrors.IsNotFound(err) || err == nil && u.GetDeletionTimestamp() != nil {
			return true
		}
		if err != nil {
			h.t.Fatal(err)
		}
		versions, _, _ := unstructured.NestedSlice(u.Object, "spec", "versions")
		version := versions[0].(map[string]any)
		if served, _ := version["served"].(bool); !served {
			version["served"] = true // what is not served cannot be listed
			_ = unstructured.SetNestedSlice(u.Object, versions, "spec", "versions")
			if _, err = h.dynamic.Resource(definitions).Update(h.ctx(), u, metav1.UpdateOptions{}); err != nil && !apierrors.IsConflict(err) {
				h.t.Fatal(err)
			}
			return false
		}
		plural, group, _ := strings.Cut(definition, ".")
		kind := schema.GroupVersionResource{Group: group, Version: version["name"].(string), Resource: plural}
		_, err = h.dynamic.Resource(kind).List(h.ctx(), metav1.ListOptions{})
		return err == nil
	})
}

// clearUp removes what is odd, and waits until all is well and nothing is left over.
func (h *handwork) clearUp() {
	h.t.Helper()
	h.remove(func(*handmade) bool { return true })
	for _, name := range h.spare {
		h.o.until(name+" is served", func() bool { return h.serves(name) })
	}
	h.stands(served)
	var last error
	defer func() {
		if h.t.Failed() {
			h.t.Logf("what is not as it should be: %v", last)
		}
	}()
	h.o.until("all is well", func() bool { last = h.rest(); return last == nil })
	h.stop()
}

// rest is what is not as it should be when nothing is odd.
func (h *handwork) rest() error {
	want, in := h.wanted(), h.slicedIn()
	for number, set := range h.identities() {
		if !slices.Contains(want, set) {
			return fmt.Errorf("identity %s of %s is not in use", number, set)
		}
	}
	for pod := range h.pods {
		if len(in[pod.String()]) != 1 {
			return fmt.Errorf("pod %s is in slices %v", pod, in[pod.String()])
		}
	}
	for _, e := range h.list(v2.CiliumEndpointResource).Items {
		if h.pods[types.NamespacedName{Namespace: e.GetNamespace(), Name: e.GetName()}] == nil {
			return fmt.Errorf("endpoint %s is left over", e.GetName())
		}
	}
	switch s, ok := h.o.status(); {
	case !ok:
		return errors.New("the operator does not answer")
	case len(s.Degraded) > 0:
		return fmt.Errorf("degraded: %s", s.degraded())
	}
	return nil
}

// need says that an object must stay.
func (h *handwork) need(uid types.UID, what, by string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.needs[uid] = needed{what, by}
}

// mourn sees that nothing is deleted that is needed.
func (h *handwork) mourn(kind watch.EventType, u *unstructured.Unstructured) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if need, ok := h.needs[u.GetUID()]; ok && kind == watch.Deleted {
		h.t.Errorf("%s was deleted, and %s needs it", need.what, need.by)
	}
}

// judge sees that no CIDR is given that another node has, or had and may still use, or
// claims.
func (h *handwork) judge(kind watch.EventType, u *unstructured.Unstructured) {
	h.mu.Lock()
	defer h.mu.Unlock()
	uid := u.GetUID()
	if kind == watch.Deleted {
		delete(h.held, uid)
		return
	}
	if h.held[uid] == nil {
		h.held[uid], h.names[uid] = map[netip.Prefix]bool{}, u.GetName()
	}
	for _, claim := range claims(u) {
		if h.held[uid][claim] {
			continue
		}
		h.held[uid][claim] = true
		if h.odd[uid] {
			continue
		}
		for other, theirs := range h.held {
			for p := range theirs {
				if other != uid && p.Overlaps(claim) {
					h.t.Errorf("%s was given to %s, and %s has, had or claims %s", claim, u.GetName(), h.names[other], p)
				}
			}
		}
	}
}

// claims are the CIDRs that an agent reads of a node, and those that it may mean, but for
// those that contain the whole pool: no node can have these.
func claims(u *unstructured.Unstructured) (all []netip.Prefix) {
	value, _, _ := unstructured.NestedFieldNoCopy(u.Object, "spec", "ipam", "podCIDRs")
	list, ok := value.([]any)
	if !ok {
		list = []any{value}
	}
	for _, entry := range list {
		text, _ := entry.(string)
		_, read, err := net.ParseCIDR(text)
		if err != nil {
			continue
		}
		ip, _ := netip.AddrFromSlice(read.IP)
		ones, bits := read.Mask.Size()
		if ip.Is4In6() {
			ones -= bits - 32
		}
		p := netip.PrefixFrom(ip.Unmap(), ones).Masked()
		if !(p.Overlaps(handPool) && p.Bits() <= handPool.Bits()) {
			all = append(all, p)
		}
	}
	return all
}

// The lease is written by hand, field by field, while an operator leads: it leads again before
// long, and serves.
func TestLeaseByHand(t *testing.T) {
	w := newWorld(t)
	w.define("CiliumNode")
	o, _ := w.run("leader", nil, brisk...)
	o.leads()
	w.served("before")
	lease := w.dynamic.Resource(coordinationv1.SchemeGroupVersion.WithResource("leases")).Namespace(w.namespace)
	for _, odd := range slices.Concat(oddities["leases"], onAnything) {
		t.Run(odd.what, func(t *testing.T) {
			began := time.Now()
			u, err := lease.Patch(t.Context(), leaseName, types.MergePatchType, []byte(odd.patch), metav1.PatchOptions{})
			if err == nil && odd.deletes {
				err = lease.Delete(t.Context(), leaseName, metav1.DeleteOptions{})
			}
			if err != nil {
				t.Fatal(err)
			}
			again := func() bool {
				s, ok := o.status()
				now := w.lease()
				return ok && s.Election.Leading && ptr.Deref(now.Spec.HolderIdentity, "") == s.Election.Identity && now.ResourceVersion != u.GetResourceVersion() &&
					now.Spec.RenewTime != nil && now.Spec.RenewTime.After(began)
			}
			for !again() {
				if time.Since(began) > waittest.Limit || !o.running() {
					t.Errorf("it does not lead again: %s", w.lease().Spec.String())
					o.stop() // the other values shall have their turn
					if err := lease.Delete(t.Context(), leaseName, metav1.DeleteOptions{}); err != nil {
						t.Error(err)
					}
					o, _ = w.run("leader", nil, brisk...)
					o.leads()
					return
				}
				time.Sleep(50 * time.Millisecond) // between looks
			}
			t.Logf("it leads again after %s", time.Since(began).Round(time.Millisecond))
		})
	}
	w.served("after")
	if _, err := lease.Patch(t.Context(), leaseName, types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{}); err != nil {
		t.Error(err)
	}
	if n := o.log.Count("panicked"); n > 0 {
		t.Error("the operator has panicked")
	}
	if code := o.stop(); code != 0 {
		t.Errorf("exit code %d", code)
	}
}

func TestClaims(t *testing.T) {
	for podCIDRs, want := range map[string]string{
		`["10.0.1.0/24"]`:              "[10.0.1.0/24]",
		`["10.0.1.7/24",7,"x"]`:        "[10.0.1.0/24]",
		`"10.0.1.0/24"`:                "[10.0.1.0/24]",
		`["::ffff:10.0.23.0/120"]`:     "[10.0.23.0/24]",
		`["10.0.1.0/024"]`:             "[10.0.1.0/24]",
		`["10.0.0.0/16"]`:              "[]",
		`["0.0.0.0/0"]`:                "[]",
		`["fd00::/112","10.0.2.0/23"]`: "[fd00::/112 10.0.2.0/23]",
		`7`:                            "[]",
		`null`:                         "[]",
	} {
		u := &unstructured.Unstructured{}
		if err := json.Unmarshal([]byte(`{"apiVersion":"v1","kind":"X","spec":{"ipam":{"podCIDRs":`+podCIDRs+`}}}`), &u.Object); err != nil {
			t.Fatal(err)
		}
		if got := fmt.Sprint(claims(u)); got != want {
			t.Errorf("%s claims %s, want %s", podCIDRs, got, want)
		}
	}
}
