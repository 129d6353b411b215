// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package identity

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/utils/ptr"

	v2 "github.com/skep-operator/skep/resources/api/v2"
	"github.com/skep-operator/skep/resources/clustertest"
	"github.com/skep-operator/skep/resources/clustertest/control"
	"github.com/skep-operator/skep/resources/explain"
	"github.com/skep-operator/skep/resources/operatortest"
)

// edit replaces labels of an identity by hand.
func (w *world) edit(name string, change func(pairs)) {
	w.t.Helper()
	api := w.dynamic.Resource(v2.CiliumIdentityResource)
	u, err := api.Get(w.t.Context(), name, metav1.GetOptions{})
	if err == nil {
		labels := securityLabels(u)
		change(labels)
		_ = unstructured.SetNestedStringMap(u.Object, labels, "security-labels")
		_, err = api.Update(w.t.Context(), u, metav1.UpdateOptions{})
	}
	if err != nil {
		w.t.Fatal(err)
	}
}

func evil(labels pairs) { labels["k8s:app"] = "evil" }

// keeps waits until an identity has these labels, under the uid that it had.
func (w *world) keeps(name string, uid types.UID, labels pairs) {
	w.t.Helper()
	var last *unstructured.Unstructured
	operatortest.Eventually(w.t, fmt.Sprint("identity ", name, " has ", labels), func() bool {
		last = w.identities()[name]
		return last != nil && maps.Equal(securityLabels(last), labels)
	})
	if last.GetUID() != uid {
		w.t.Errorf("identity %s was made anew", name)
	}
}

// updates counts requests of the duty to update identities.
func (w *world) updates() (n int) {
	w.t.Helper()
	for _, r := range w.requests() {
		if strings.HasPrefix(r, "update ") {
			n++
		}
	}
	return n
}

// ID-21, ID-37 and ID-38; ID-E20: labels that are edited under the uid of their identity are put
// back, and an identity that is deleted is made again with those that it was given.
func TestServerEditedLabelsAreRestored(t *testing.T) {
	w := newWorld(t)
	w.pod("web-1", pairs{"app": "web"})
	w.pod("evil-1", pairs{"app": "evil"})
	o := w.start()
	want := w.with(pairs{"app": "web"})
	first := w.made(want)
	name, uid := first.GetName(), first.GetUID()
	other := w.made(w.with(pairs{"app": "evil"})).GetName()
	w.endpoint("web-1", name)

	w.edit(name, evil)
	w.keeps(name, uid, want)
	if diff := cmp.Diff(first.GetLabels(), w.identities()[name].GetLabels()); diff != "" {
		t.Error("metadata.labels: ", diff)
	}
	w.bears("web-1", name)
	w.bears("evil-1", other)
	operatortest.Eventually(t, "an Event tells it", func() bool { return w.events(name, "SecurityLabelsRestored") == 1 })
	written := slices.DeleteFunc(w.controller.Deps.Book.For("CiliumIdentity", "", name).Writes, func(x explain.Write) bool { return x.Resource == "events" })
	if len(written) != 2 || written[1].Verb != "update" || written[1].Cause == nil || written[1].Cause.Triggers[0].Kind != "CiliumIdentity" {
		t.Errorf("writes are %+v", written)
	}

	// Edited and deleted before it is put back.
	w.edit(name, evil)
	w.deleteIdentity(name)
	if again := w.made(want); again.GetName() != name {
		t.Errorf("it has %s, not %s", again.GetName(), name)
	}
	w.bears("web-1", name)

	// What is edited while no replica leads is believed: web-1 gets another.
	o.Stop()
	w.edit(name, evil)
	o = w.start()
	if again := w.made(want); again.GetName() == name {
		t.Errorf("%s is put back, and it was not seen before", name)
	}
	if all := w.named(w.with(pairs{"app": "evil"})); len(all) != 2 || !slices.Contains(all, other) || !slices.Contains(all, name) {
		t.Errorf("other labels have %v", all)
	}
	if d := o.Degraded("identity"); d != "" {
		t.Errorf("it is degraded:\n%s", d)
	}
}

// ID-37: a read that shows another object is not the last word.
func TestServerReadOfAnotherIdentity(t *testing.T) {
	w := newWorld(t)
	w.pod("web-1", pairs{"app": "web"})
	w.start()
	want := w.with(pairs{"app": "web"})
	first := w.made(want)
	rule := w.proxy.Rule(t, clustertest.Rule{
		Match: clustertest.Match{Verbs: []string{"get"}, Resources: []string{"ciliumidentities"}}, Times: 2,
		Spoil: &clustertest.Spoil{Answers: []control.SpoiltAnswer{control.SpoilOtherUID}},
	})
	w.edit(first.GetName(), evil)
	w.keeps(first.GetName(), first.GetUID(), want)
	if rule.Hits(t) != 2 {
		t.Errorf("%d reads were spoilt", rule.Hits(t))
	}
}

// events counts Events about an identity.
func (w *world) events(name, reason string) (n int) {
	w.t.Helper()
	list, err := w.core.CoreV1().Events("").List(w.t.Context(), metav1.ListOptions{FieldSelector: "involvedObject.name=" + name + ",reason=" + reason})
	if err != nil {
		w.t.Fatal(err)
	}
	for _, e := range list.Items {
		n += int(e.Count)
	}
	return n
}

// ID-37; ID-E22: the labels of another filter are no edit, also where pods of today use them.
func TestServerOtherFilterIsNoEdit(t *testing.T) {
	w := newWorld(t)
	w.pod("web-1", pairs{"app": "web", "team": "a"})
	o := w.start("--labels=k8s:!team")
	old := w.made(w.with(pairs{"app": "web"}))
	w.endpoint("web-1", old.GetName())
	o.Stop()
	o = w.start()
	made := w.made(w.with(pairs{"app": "web", "team": "a"}))
	w.bears("web-1", made.GetName())
	w.deleteIdentity(old.GetName()) // the endpoint goes on with it
	again := w.made(w.with(pairs{"app": "web"}))
	if again.GetName() != old.GetName() {
		t.Errorf("%s became %s", old.GetName(), again.GetName())
	}
	if n := w.updates(); n != 0 {
		t.Errorf("%d updates: %v", n, w.requests())
	}
	if d := o.Degraded("identity"); d != "" {
		t.Errorf("it is degraded:\n%s", d)
	}
}

// ID-38: without the permission the state is named, and nothing is asked for again
// and again.
func TestServerMayNotRestore(t *testing.T) {
	w := newWorld(t)
	w.pod("web-1", pairs{"app": "web"})
	o := w.start()
	want := w.with(pairs{"app": "web"})
	u := w.made(want)
	rule := w.proxy.Answer(t, http.StatusForbidden, clustertest.Match{Verbs: []string{"update"}, Resources: []string{"ciliumidentities"}})
	w.edit(u.GetName(), evil)
	operatortest.Eventually(t, "it is named", func() bool {
		d := o.Degraded("identity")
		return strings.Contains(d, "identity "+u.GetName()) && strings.Contains(d, "security-labels") && strings.Contains(d, "k8s:app=web")
	})
	if len(w.identities()) != 1 {
		t.Errorf("there are %d identities", len(w.identities()))
	}
	rule.Remove(t)
	w.keeps(u.GetName(), u.GetUID(), want)
	operatortest.Eventually(t, "all is well", func() bool { return o.Degraded("identity") == "" })
}

// mutate has the API server add a label to identities, as an admission webhook does.
func (w *world) mutate(operations ...admissionv1.OperationType) {
	w.t.Helper()
	const name = "inject.skep.dev"
	api := w.core.AdmissionregistrationV1()
	policy := &admissionv1.MutatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: admissionv1.MutatingAdmissionPolicySpec{
		FailurePolicy: ptr.To(admissionv1.Fail), ReinvocationPolicy: admissionv1.NeverReinvocationPolicy,
		MatchConstraints: &admissionv1.MatchResources{ResourceRules: []admissionv1.NamedRuleWithOperations{{RuleWithOperations: admissionv1.RuleWithOperations{
			Operations: operations,
			Rule:       admissionv1.Rule{APIGroups: []string{"cilium.io"}, APIVersions: []string{"*"}, Resources: []string{"ciliumidentities"}},
		}}}},
		Mutations: []admissionv1.Mutation{{PatchType: admissionv1.PatchTypeJSONPatch, JSONPatch: &admissionv1.JSONPatch{
			Expression: `[JSONPatch{op: "add", path: "/security-labels/k8s:injected", value: "yes"}]`,
		}}},
	}}
	server, err := w.core.Discovery().ServerVersion()
	if err != nil {
		w.t.Fatal(err)
	}
	if version.MustParse(server.GitVersion).LessThan(version.MustParse("1.36")) {
		w.t.Skipf("API servers of %s have no MutatingAdmissionPolicy of v1", server.GitVersion)
	}
	if _, err = api.MutatingAdmissionPolicies().Create(w.t.Context(), policy, metav1.CreateOptions{}); err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { // other tests see nothing of it
		ctx := context.Background()
		_ = api.MutatingAdmissionPolicyBindings().Delete(ctx, name, metav1.DeleteOptions{})
		_ = api.MutatingAdmissionPolicies().Delete(ctx, name, metav1.DeleteOptions{})
		operatortest.Eventually(w.t, "identities are mutated no more", func() bool { return !w.isMutated(ctx) })
	})
	binding := &admissionv1.MutatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: admissionv1.MutatingAdmissionPolicyBindingSpec{PolicyName: name}}
	if _, err := api.MutatingAdmissionPolicyBindings().Create(w.t.Context(), binding, metav1.CreateOptions{}); err != nil {
		w.t.Fatal(err)
	}
	operatortest.Eventually(w.t, "identities are mutated", func() bool { return w.isMutated(w.t.Context()) })
}

// isMutated reports whether an identity is made with more than it is asked for.
func (w *world) isMutated(ctx context.Context) bool {
	w.t.Helper()
	const name = "65000"
	api := w.dynamic.Resource(v2.CiliumIdentityResource)
	u, err := api.Create(ctx, identityObject(name, pairs{"k8s:probe": "x"}), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	return err == nil && securityLabels(u)["k8s:injected"] != ""
}

// ID-20 and ID-38; ID-E21: labels that the API server adds when an identity is made are taken off once.
func TestServerMutatedAtCreation(t *testing.T) {
	w := newWorld(t)
	w.mutate(admissionv1.Create)
	w.start()
	for i := range 5 {
		w.pod(fmt.Sprint("web-", i), pairs{"app": "web"})
	}
	u := w.made(w.with(pairs{"app": "web"}))
	w.bears("web-0", u.GetName())
	if all := w.identities(); len(all) != 1 {
		t.Errorf("there are %d identities", len(all))
	}
}

// ID-20 and ID-38; ID-E21: one that adds them again and again is named, and makes one identity.
func TestServerMutatedForEver(t *testing.T) {
	w := newWorld(t)
	w.mutate(admissionv1.Create, admissionv1.Update)
	o := w.start()
	w.pod("web-1", pairs{"app": "web"})
	operatortest.Eventually(t, "it is tried again and again", func() bool { return w.updates() > 4 })
	d := o.Degraded("identity")
	all := w.identities()
	if len(all) != 1 {
		t.Errorf("there are %d identities", len(all))
	}
	for name := range all {
		for _, want := range []string{"identity " + name, "security-labels", "k8s:app=web", "k8s:injected"} {
			if !strings.Contains(d, want) {
				t.Errorf("health does not say %s:\n%s", want, d)
			}
		}
	}
	if once := o.Warnings("identity"); len(once) != 1 {
		t.Errorf("%d warnings:\n%s", len(once), strings.Join(o.Messages("identity"), "\n"))
	}
	// The next leader believes what it sees, makes another, and goes on with that.
	o.Stop()
	before := w.updates()
	w.start()
	operatortest.Eventually(t, "the next leader tries, too", func() bool { return w.updates() > before+2 })
	if n := len(w.identities()); n != 2 {
		t.Errorf("there are %d identities", n)
	}
}
