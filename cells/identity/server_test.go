// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package identity

import (
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	v2 "github.com/skep-operator/skep/resources/api/v2"
	"github.com/skep-operator/skep/resources/clustertest"
	"github.com/skep-operator/skep/resources/k8s"
	"github.com/skep-operator/skep/resources/operatortest"
)

func podName(namespace, name string) types.NamespacedName {
	return types.NamespacedName{Namespace: namespace, Name: name}
}

// ID-E1, ID-E2 and ID-E12; ID-19 and ID-22.
func TestServerOneIdentityForAllPodsOfATemplate(t *testing.T) {
	w := newWorld(t)
	o := w.start()
	w.pod("web-1", pairs{"app": "web", "pod-template-hash": "abc"})
	u := w.made(w.with(pairs{"app": "web"}))
	number, err := strconv.Atoi(u.GetName())
	if err != nil || number < 256 || number > 65535 {
		t.Errorf("its name is %s", u.GetName())
	}
	if diff := cmp.Diff(pairs{"io.kubernetes.pod.namespace": w.namespace}, u.GetLabels()); diff != "" {
		t.Error("metadata.labels: ", diff)
	}
	if len(u.GetOwnerReferences())+len(u.GetFinalizers())+len(u.GetAnnotations()) != 0 || u.Object["spec"] != nil {
		t.Errorf("it has more than it should: %v", u.Object)
	}
	for i := range 100 {
		w.pod(fmt.Sprint("more-", i), pairs{"app": "web", "pod-template-hash": fmt.Sprint("h", i)})
	}
	for i := range 100 {
		w.bears(fmt.Sprint("more-", i), u.GetName())
	}
	w.requested("create: 201")
	if !w.controller.Wanted(mustNumber(t, u.GetName())) {
		t.Error("no pod has it")
	}
	for i := range 100 {
		w.deletePod(fmt.Sprint("more-", i))
	}
	w.deletePod("web-1")
	operatortest.Eventually(t, "no pod has it", func() bool { return !w.controller.Wanted(mustNumber(t, u.GetName())) })
	w.only(w.with(pairs{"app": "web"}))
	w.requested("create: 201")
	for name, want := range map[string]float64{"identity_known": 1, "identity_used": 0, "identity_free_numbers": 65279, "identity_duplicates": 0, "identity_exhausted_total": 0} {
		operatortest.Eventually(t, fmt.Sprintf("%s is %v", name, want), func() bool { return o.Metric(name) == want })
	}
	operatortest.Eventually(t, "one identity is counted", func() bool {
		return o.Metric("cid_controller_work_queue_event_count", "success", "cid") == 1
	})
}

// ID-E3, ID-E4 and ID-E18; ID-1, ID-10 and ID-11.
func TestServerWhichPods(t *testing.T) {
	w := newWorld(t)
	o := w.start()
	w.pod("host", pairs{"app": "host"}, func(p *corev1.Pod) { p.Spec.HostNetwork = true })
	w.pod("elsewhere", pairs{"app": "elsewhere"}, onNode("virtual-"+w.namespace))
	w.pod("evil", pairs{"app": "evil", "io.cilium.k8s.policy.cluster": "evil"})
	w.pod("done", pairs{"app": "done"}, onNode("virtual-"+w.namespace))
	w.setPhase("done", corev1.PodSucceeded)
	w.only(w.with(pairs{"app": "evil"}))
	operatortest.Eventually(t, "it has seen that the pod is done", func() bool {
		d := w.controller.Deps.Book.For("Pod", w.namespace, "done").Decisions
		return len(d) > 0 && d[len(d)-1].Outcome == finished
	})
	w.node("virtual-" + w.namespace) // a moment later
	w.only(w.with(pairs{"app": "evil"}), w.with(pairs{"app": "elsewhere"}))
	w.requested("create: 201", "create: 201")
	if d := o.Degraded(""); d != "" {
		t.Errorf("it is degraded:\n%s", d)
	}
	for pod, want := range map[string]string{"host": hostNetwork, "done": finished} {
		decisions := w.controller.Deps.Book.For("Pod", w.namespace, pod).Decisions
		if len(decisions) == 0 || decisions[len(decisions)-1].Outcome != want {
			t.Errorf("of %s is told: %+v", pod, decisions)
		}
	}
	explained := w.controller.Deps.Book.For("Pod", w.namespace, "evil")
	if len(explained.Writes) != 1 || explained.Writes[0].Cause.Rule != "identity make" {
		t.Errorf("of a pod with an identity is told: %+v", explained)
	}
}

// ID-11: where agents make no CiliumNodes, pods count on any node.
func TestServerWithoutCiliumNodes(t *testing.T) {
	w := newWorld(t)
	w.start("--enable-ciliumnode-crd=false", "--ipam=delegated-plugin")
	w.pod("web-1", pairs{"app": "web"}, onNode("plain-"+w.namespace))
	w.only(w.with(pairs{"app": "web"}))
	w.requested("create: 201")
}

func (w *world) setPhase(pod string, phase corev1.PodPhase) {
	w.t.Helper()
	api := w.core.CoreV1().Pods(w.namespace)
	p, err := api.Get(w.t.Context(), pod, metav1.GetOptions{})
	if err == nil {
		p.Status.Phase = phase
		_, err = api.UpdateStatus(w.t.Context(), p, metav1.UpdateOptions{})
	}
	if err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) node(name string) {
	w.t.Helper()
	node := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "cilium.io/v2", "kind": "CiliumNode", "metadata": map[string]any{"name": name}, "spec": map[string]any{},
	}}
	if _, err := w.dynamic.Resource(v2.CiliumNodeResource).Create(w.t.Context(), node, metav1.CreateOptions{}); err != nil {
		w.t.Fatal(err)
	}
}

// Number 19 of the contract's identities.md; ID-E5; ID-16 to ID-18: of two the older one is chosen, whichever form it has.
func TestServerAdopts(t *testing.T) {
	w := newWorld(t)
	first := identityObject("400", w.with(pairs{"app": "web"}))
	first.SetLabels(pairs{"app": "web", "io.kubernetes.pod.namespace": w.namespace}) // the form of 1.17
	w.store(first)
	w.identity("foo", w.with(pairs{"app": "odd"}))
	w.identity("70000", w.with(pairs{"app": "far"}))
	w.identity("500", nil)
	older := w.identities()["400"].GetCreationTimestamp()
	for { // until it is younger
		w.identity("300", w.with(pairs{"app": "web"}))
		if at := w.identities()["300"].GetCreationTimestamp(); !at.Equal(&older) {
			break
		}
		w.deleteIdentity("300")
	}
	w.pod("web-1", pairs{"app": "web"})
	o := w.start()
	w.bears("web-1", "400")
	w.requested()
	operatortest.Eventually(t, "one is a duplicate", func() bool { return o.Metric("identity_duplicates") == 1 })
	w.identity("200", w.with(pairs{"app": "web"})) // out of range
	w.identity("301", w.with(pairs{"app": "web"}))
	w.deleteIdentity("400") // no endpoint has it
	w.bears("web-1", "300")
	w.requested()
	w.pod("far", pairs{"app": "far"})
	w.pod("odd", pairs{"app": "odd"})
	operatortest.Eventually(t, "they have identities of their own", func() bool {
		return len(w.named(w.with(pairs{"app": "far"}))) == 2 && len(w.named(w.with(pairs{"app": "odd"}))) == 2
	})
}

// In the mode both agents make identities, too, at the same moment and without
// asking. A set of labels may have two then, of which it keeps the one that it has, and
// a new leader takes the oldest (ID-17 to ID-19).
func TestServerBesideAgents(t *testing.T) {
	const sets = 60
	app := func(i int) pairs { return pairs{"app": fmt.Sprint("app-", i)} }
	pod := func(i int) string { return fmt.Sprint("pod-", i) }
	w := newWorld(t)
	w.identity("400", w.with(app(0))) // made before
	o := w.start("--identity-management-mode=both")
	var agent errgroup.Group
	agent.Go(func() error {
		for i, number := 1, 1000; i < sets; number++ {
			switch err := w.createIdentity(fmt.Sprint(number), w.with(app(i))); {
			case err == nil:
				i++
			case !apierrors.IsAlreadyExists(err): // else the operator has drawn it
				return err
			}
		}
		return nil
	})
	for i := range sets {
		w.pod(pod(i), app(i))
	}
	if err := agent.Wait(); err != nil {
		t.Fatal(err)
	}
	for i := range sets {
		operatortest.Eventually(t, pod(i)+" has an identity", func() bool {
			number, known := w.of(pod(i))
			return known && slices.Contains(w.named(w.with(app(i))), number.String())
		})
	}
	w.bears(pod(0), "400")
	var made, twins int
	operatortest.Eventually(t, "each that the operator made is one beside another", func() bool {
		made, twins = w.createdIdentities(), len(w.identities())-sets
		return made == twins
	})
	t.Logf("%d made by the operator, each beside one of an agent", made)
	if made > sets-1 {
		t.Errorf("%d identities made for %d sets of labels, one of which had one before", made, sets)
	}
	operatortest.Eventually(t, "twins are counted", func() bool { return o.Metric("identity_duplicates") == float64(twins) })
	o.Stop()
	w.start("--identity-management-mode=both")
	for i := range sets {
		w.bears(pod(i), w.oldest(w.with(app(i))))
	}
	if again := w.createdIdentities(); again != made {
		t.Errorf("%d made after a restart", again-made)
	}
}

// createdIdentities is how many the operator has made.
func (w *world) createdIdentities() int {
	return len(slices.DeleteFunc(w.requests(), func(r string) bool { return r != "create: 201" }))
}

// oldest is the oldest of the identities with these labels, the lowest number of those
// that are as old.
func (w *world) oldest(labels pairs) string {
	w.t.Helper()
	all := w.identities()
	return slices.MinFunc(w.named(labels), func(a, b string) int {
		if age := all[a].GetCreationTimestamp().Compare(all[b].GetCreationTimestamp().Time); age != 0 {
			return age
		}
		return int(mustNumber(w.t, a)) - int(mustNumber(w.t, b))
	})
}

// ID-E6 and ID-E7; ID-25 and ID-26.
func TestServerNamespaceChanges(t *testing.T) {
	w := newWorld(t)
	w.start()
	for i := range 3 {
		for j := range 5 {
			w.pod(fmt.Sprintf("web-%d-%d", i, j), pairs{"app": fmt.Sprint("web", i)})
		}
	}
	var before []pairs
	for i := range 3 {
		before = append(before, w.with(pairs{"app": fmt.Sprint("web", i)}))
	}
	w.only(before...)
	w.patchNamespace("annotations", "a", ptr.To("b"))
	w.labelNamespace("team", ptr.To("a"))
	after := slices.Clone(before)
	for i := range 3 {
		l := w.with(pairs{"app": fmt.Sprint("web", i), "io.cilium.k8s.namespace.labels.team": "a"})
		u := w.made(l)
		if _, has := u.GetLabels()["io.cilium.k8s.namespace.labels.team"]; has {
			t.Errorf("metadata.labels has it: %v", u.GetLabels())
		}
		for j := range 5 {
			w.bears(fmt.Sprintf("web-%d-%d", i, j), u.GetName())
		}
		after = append(after, l)
	}
	w.only(after...)
	w.labelNamespace("team", nil)
	for i, l := range before {
		w.bears(fmt.Sprintf("web-%d-0", i), w.named(l)[0])
	}
	w.requested(slices.Repeat([]string{"create: 201"}, 6)...)
}

// Number 28 of the contract's identities.md; ID-E8; ID-21: also where agents make identities, too.
func TestServerMadeAgainWithItsNumber(t *testing.T) {
	w := newWorld(t)
	w.start("--identity-management-mode=both")
	w.pod("web-1", pairs{"app": "web"})
	u := w.made(w.with(pairs{"app": "web"}))
	for range 3 {
		w.deleteIdentity(u.GetName())
		again := w.made(w.with(pairs{"app": "web"}))
		if again.GetName() != u.GetName() || again.GetUID() == u.GetUID() || !cmp.Equal(again.GetLabels(), u.GetLabels()) {
			t.Fatalf("%v became %v", u, again)
		}
		u = again
	}
	// A pod that is gone, but whose endpoint goes on with the number.
	w.endpoint("web-1", mustNumber(t, u.GetName()).String())
	w.deletePod("web-1")
	operatortest.Eventually(t, "no pod has it", func() bool { return !w.controller.Wanted(mustNumber(t, u.GetName())) })
	w.deleteIdentity(u.GetName())
	if again := w.made(w.with(pairs{"app": "web"})); again.GetName() != u.GetName() {
		t.Errorf("%s became %s", u.GetName(), again.GetName())
	}
	w.deleteEndpoint("web-1")
	w.pod("sees", pairs{"app": "other"})
	w.made(w.with(pairs{"app": "other"}))
	w.eventuallyNotCarried(mustNumber(t, u.GetName()))
	w.deleteIdentity(u.GetName())
	w.pod("more", pairs{"app": "more"})
	w.made(w.with(pairs{"app": "more"}))
	w.only(w.with(pairs{"app": "other"}), w.with(pairs{"app": "more"}))
}

// ID-E9; ID-20: a number that is taken, and not seen to be.
func TestServerNumberIsTaken(t *testing.T) {
	w := newWorld(t)
	w.start()
	w.proxy.HoldWatch(t, "ciliumidentities", 0)
	w.proxy.CutWatches(t, clustertest.Match{Resources: []string{"ciliumidentities"}})
	w.identity("500", w.with(pairs{"app": "other"}))
	w.controller.update(func(tb *table) { tb.random = drawing(t, tb, 500, 501) })
	w.pod("web-1", pairs{"app": "web"})
	if u := w.made(w.with(pairs{"app": "web"})); u.GetName() != "501" {
		t.Errorf("it has %s", u.GetName())
	}
	w.bears("web-1", "501")
	if diff := cmp.Diff(w.with(pairs{"app": "other"}), securityLabels(w.identities()["500"])); diff != "" {
		t.Error("the other one changed: ", diff)
	}
	w.requested("create: 409", "get 500: 200", "create: 201")
	w.pod("other", pairs{"app": "other"})
	w.bears("other", "500") // known from the answer
}

// Number 22 of the contract's identities.md; ID-E10 and ID-E11.
func TestServerLabelFilter(t *testing.T) {
	for name, test := range map[string]struct{ release, option, without string }{
		"allow":          {"1.17", "k8s:app", "team serviceaccount"},
		"allow, in 1.18": {"1.18", "k8s:app", "team"},
		"exclude":        {"1.20", "k8s:!team", "team"},
		"the trap":       {"1.17", "!k8s:team", "app team serviceaccount"},
		"two entries":    {"1.20", "k8s:!team,!app{2}x", "team"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			o := w.start("--labels="+test.option, "--cilium-release="+test.release)
			w.pod("web-1", pairs{"app": "web", "team": "a"})
			want := w.with(pairs{"app": "web", "team": "a"})
			for _, key := range strings.Fields(test.without) {
				delete(want, "k8s:"+key)
				delete(want, "k8s:io.cilium.k8s.policy."+key)
			}
			w.only(want)
			warned := slices.ContainsFunc(o.Messages("identity"), func(line string) bool { return strings.Contains(line, "k8s:!team") })
			if warned != (name == "the trap") {
				t.Errorf("it warns: %q", o.Messages("identity"))
			}
		})
	}
}

// ID-E13.
func TestServerRangeOfTheCluster(t *testing.T) {
	w := newWorld(t)
	w.identity("300", w.with(pairs{"app": "web"}))
	w.start("--cluster-id=1", "--cluster-name=one")
	w.pod("web-1", pairs{"app": "web"})
	want := w.with(pairs{"app": "web"})
	want["k8s:io.cilium.k8s.policy.cluster"] = "one"
	if n := mustNumber(t, w.made(want).GetName()); n < 65536 || n > 131071 {
		t.Errorf("it is %d", n)
	}
}

// ID-E14; ID-12.
func TestServerWaitsForTheNamespace(t *testing.T) {
	w := newWorld(t)
	w.start()
	held := w.proxy.HoldWatch(t, "namespaces", 0)
	w.proxy.CutWatches(t, clustertest.Match{Resources: []string{"namespaces"}})
	operatortest.Eventually(t, "namespaces come late", func() bool { return held.Hits(t) > 0 })
	w.namespace += "-late"
	w.newNamespace(w.namespace, pairs{"team": "a"})
	w.pod("web-1", pairs{"app": "web"})
	operatortest.Eventually(t, "the pod is seen", func() bool {
		d := w.controller.Deps.Book.For("Pod", w.namespace, "web-1").Decisions
		return len(d) == 1 && d[0].Outcome == noNamespace
	})
	if all := w.identities(); len(all) != 0 {
		t.Errorf("there are %v", all)
	}
	held.Remove(t)
	w.only(w.with(pairs{"app": "web", "io.cilium.k8s.namespace.labels.team": "a"}))
	w.requested("create: 201")
}

// ID-E15.
func TestServerLongServiceAccount(t *testing.T) {
	w := newWorld(t)
	w.start()
	long := strings.Repeat("s", 70)
	w.account(w.namespace, long)
	w.pod("web-1", pairs{"app": "web"}, func(p *corev1.Pod) { p.Spec.ServiceAccountName = long })
	want := w.with(pairs{"app": "web", "io.cilium.k8s.policy.serviceaccount": long})
	if _, has := w.made(want).GetLabels()["io.cilium.k8s.policy.serviceaccount"]; has {
		t.Error("metadata.labels has it")
	}
}

// Invariant 1: neither another term nor another process writes where all is well.
func TestServerRestartWritesNothing(t *testing.T) {
	w := newWorld(t)
	o := w.start()
	var all []pairs
	for i := range 30 {
		w.pod(fmt.Sprint("web-", i), pairs{"app": fmt.Sprint("web-", i%10)})
	}
	for i := range 10 {
		all = append(all, w.with(pairs{"app": fmt.Sprint("web-", i)}))
	}
	w.only(all...)
	lists := w.lists()
	o.ReenterTerm()
	<-w.controller.Complete()
	w.bears("web-7", w.named(all[7])[0])
	if n := w.lists(); n != lists {
		t.Errorf("another term costs %d lists", n-lists)
	}
	o.Stop()
	w.start()
	for i := range 30 {
		w.bears(fmt.Sprint("web-", i), w.named(all[i%10])[0])
	}
	w.pod("last", pairs{"app": "last"})
	w.only(append(all, w.with(pairs{"app": "last"}))...)
	w.requested(slices.Repeat([]string{"create: 201"}, 11)...)
}

// lists counts the requests for the initial state of anything.
func (w *world) lists() (n int) {
	for _, r := range w.proxy.Requests(w.t, 0) {
		if r.Verb == "list" || strings.Contains(r.Path, "sendInitialEvents=true") {
			n++
		}
	}
	return n
}

// ID-E16, ID-20: an answer that got lost is no reason for a second identity.
func TestServerLostAnswer(t *testing.T) {
	w := newWorld(t)
	w.start()
	w.proxy.Rule(t, clustertest.Rule{Match: creates, LoseAnswer: &clustertest.LoseAnswer{Connection: true}, Times: 1})
	w.pod("web-1", pairs{"app": "web"})
	w.bears("web-1", w.made(w.with(pairs{"app": "web"})).GetName())
	w.pod("web-2", pairs{"app": "web"})
	w.pod("other", pairs{"app": "other"})
	w.only(w.with(pairs{"app": "web"}), w.with(pairs{"app": "other"}))
}

var creates = clustertest.Match{Verbs: []string{"create"}, Resources: []string{"ciliumidentities"}}

// ID-E17, ID-24: what fails is tried again, and what is forbidden is told once.
func TestServerFaults(t *testing.T) {
	for code, telling := range map[int]string{
		http.StatusForbidden:          "it is forbidden to create ciliumidentities.cilium.io",
		http.StatusTooManyRequests:    "",
		http.StatusConflict:           "",
		http.StatusServiceUnavailable: "",
	} {
		t.Run(fmt.Sprint(code), func(t *testing.T) {
			w := newWorld(t)
			o := w.start()
			rule := w.proxy.Answer(t, code, creates)
			var all []pairs
			for i := range 20 {
				w.pod(fmt.Sprint("web-", i), pairs{"app": fmt.Sprint("web-", i)})
				all = append(all, w.with(pairs{"app": fmt.Sprint("web-", i)}))
			}
			operatortest.Eventually(t, "it shows in health", func() bool {
				d := o.Degraded("identity")
				return d != "" && strings.Contains(d, telling)
			})
			operatortest.Eventually(t, "it is tried again", func() bool { return rule.Hits(t) > 1 })
			hits := rule.Hits(t)
			rule.Remove(t)
			w.only(all...)
			operatortest.Eventually(t, "all is well", func() bool { return o.Degraded("") == "" })
			if telling == "" {
				return
			}
			if hits > 20+writers {
				t.Errorf("%d forbidden requests", hits)
			}
			told := 0
			for _, line := range o.Messages("identity") {
				if strings.Contains(line, telling) {
					told++
				}
			}
			if told != 1 {
				t.Errorf("it is told %d times:\n%s", told, strings.Join(o.Messages("identity"), "\n"))
			}
		})
	}
}

// The rules that the cell declares are enough.
func TestServerLeastRole(t *testing.T) {
	w := newWorld(t)
	role := []string{"--identity-management-mode=operator"}
	o, err := operatortest.New(t, Cell, w.proxy.Kubeconfig(), role...)
	if err != nil {
		t.Fatal(err)
	}
	user := "least-" + w.namespace
	operatortest.Allow(t, w.core, user, k8s.LeastRole("x", o.Graph(), true).Rules...)
	w.identity("300", w.with(pairs{"app": "web"}))
	w.startAs(w.proxy.UserKubeconfig(t, user))
	w.proxy.Rule(t, clustertest.Rule{Match: creates, LoseAnswer: &clustertest.LoseAnswer{Connection: true}, Times: 1})
	w.pod("web-1", pairs{"app": "web"})
	w.pod("web-2", pairs{"app": "other"})
	w.bears("web-1", "300")
	w.bears("web-2", w.made(w.with(pairs{"app": "other"})).GetName())
	for _, r := range w.proxy.Requests(t, 0) {
		if r.Status == http.StatusForbidden {
			t.Errorf("%s %s is forbidden", r.Verb, r.Path)
		}
	}
}

// Only those endpoints are watched that carry numbers in this configuration: the
// definition of the others may not be there, and a stream would wait for it.
func TestServerWatchesOneKindOfEndpoints(t *testing.T) {
	for _, test := range []struct{ arg, watched, other string }{
		{"--enable-cilium-endpoint-slice=false", "ciliumendpoints", "ciliumendpointslices"},
		{"--enable-cilium-endpoint-slice=true", "ciliumendpointslices", "ciliumendpoints"},
	} {
		t.Run(test.arg, func(t *testing.T) {
			w := newWorld(t)
			o := w.start(test.arg)
			asked := map[string]bool{}
			for _, r := range w.proxy.Requests(t, 0) {
				asked[r.Resource] = true
			}
			if !asked[test.watched] || asked[test.other] {
				t.Errorf("asked for %v", asked)
			}
			if d := o.Degraded("stream"); strings.Contains(d, test.other) {
				t.Errorf("it is degraded:\n%s", d)
			}
		})
	}
}

// Where the operator does not make identities, nothing is watched for it.
func TestServerOffCostsNothing(t *testing.T) {
	w := newWorld(t)
	o := operatortest.Start(t, Cell, w.proxy.Kubeconfig(), "--labels=(")
	o.ReenterTerm()
	for _, r := range w.proxy.Requests(t, 0) {
		if r.Verb == "list" || r.Verb == "watch" {
			t.Errorf("%s %s", r.Verb, r.Path)
		}
	}
}

// ID-4: what cannot be read is refused at the start, with its option.
func TestBadOptions(t *testing.T) {
	for want, args := range map[string][]string{
		`--labels="ok k8s:("`:         {"--labels=ok k8s:("},
		"/nowhere/prefixes.json":      {"--label-prefix-file=/nowhere/prefixes.json"},
		"--identity-management-mode=": {"--kvstore=etcd", "--identity-allocation-mode=kvstore"},
	} {
		_, err := operatortest.New(t, Cell, "/nonexistent", append([]string{"--identity-management-mode=operator"}, args...)...)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v", args, err)
		}
	}
}

// ID-9: so is a file.
func TestLabelPrefixFile(t *testing.T) {
	write := func(text string) string {
		t.Helper()
		file := filepath.Join(t.TempDir(), "prefixes.json")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	all, err := newFilters(Config{Labels: []string{`k8s:!app\.`}, LabelPrefixFile: write(`{"version":1,"valid-prefixes":[{"source":"k8s","prefix":"app"}]}`)}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	f := all.all[0]
	if len(all.all) != 1 || !f.Keeps("k8s", "app") || f.Keeps("k8s", "app.kubernetes.io/name") || f.Keeps("k8s", "team") {
		t.Error("the file does not count")
	}
	for want, file := range map[string]string{
		"no such file": filepath.Join(t.TempDir(), "none.json"), "version 2": write(`{"version":2}`), "unexpected EOF": write(`{`),
	} {
		if _, err := newFilters(Config{LabelPrefixFile: file}, slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), "--label-prefix-file: ") || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
}
