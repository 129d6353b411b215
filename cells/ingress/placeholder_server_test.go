// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package ingress

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/skep-operator/skep/cells/internal/stockchart"
	"github.com/skep-operator/skep/resources/operatortest"
	"github.com/skep-operator/skep/resources/referencetest"
)

// placeholder is one of both kinds, nil if there is none.
func (w *world) placeholder(kind, name string) *unstructured.Unstructured {
	w.T.Helper()
	resource := ownedSlices.Resource()
	if kind == "Endpoints" {
		resource = ownedEndpoints.Resource()
	}
	u, err := w.Dynamic.Resource(resource).Namespace(w.Namespace).Get(w.T.Context(), namePrefix+name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	w.must(err)
	return u
}

// awaitPlaceholders waits for the kinds of placeholders that an Ingress has.
func (w *world) awaitPlaceholders(name string, want ...string) {
	w.T.Helper()
	operatortest.Eventually(w.T, fmt.Sprint(name, " has ", want), func() bool {
		var has []string
		for _, kind := range []string{"EndpointSlice", "Endpoints"} {
			if w.placeholder(kind, name) != nil {
				has = append(has, kind)
			}
		}
		return slices.Equal(has, want)
	})
}

// awaitServed waits for all that an Ingress with a load balancer of its own has, but its placeholder.
func (w *world) awaitServed(name string) {
	w.T.Helper()
	operatortest.Eventually(w.T, name+" has a Service and a configuration", func() bool { return w.loadBalancer(name) != nil && w.dedicated(name) != nil })
}

// underChart starts an operator under the role that the chart of a release gives with some values.
func (w *world) underChart(user, release, values string) *operatortest.Operator {
	role := w.As(user, stockchart.RoleIn(w.T, release, values)...)
	return w.StartKnowing("ingresses", func() *operatortest.Operator { return operatortest.Start(w.T, Cell, role, w.args()...) })
}

// placeholderWrites are the writes of placeholders in all namespaces, in their order.
func (w *world) placeholderWrites() (all []string) {
	for _, r := range w.Proxy.Requests(w.T, 0) {
		if strings.HasPrefix(r.Resource, "endpoint") && r.Verb != "get" && r.Verb != "list" && r.Verb != "watch" {
			all = append(all, strings.TrimSpace(r.Verb+" "+r.Resource+" "+r.Name))
		}
	}
	return all
}

// Numbers 19 and 20 of the contract's ingress.md; ING-20 to ING-22: under the roles of the charts, one after another, a Service has the kind of placeholder that the role allows to
// write; what is left of the other kind goes where it may be deleted; and nothing is asked for that is forbidden.
func TestPlaceholders(t *testing.T) {
	const slice, endpoints = "EndpointSlice", "Endpoints"
	w := newWorld(t)
	w.apply(simple("own", "own.example.com", "front"))
	deletion := "delete endpoints " + namePrefix + "own"
	for i, run := range []struct {
		release, values string
		last            string   // the kind of a new placeholder
		own, writes     []string // those of an old one
	}{
		{"1.18", "gateway-ingress", endpoints, []string{endpoints}, []string{"create endpoints"}},
		{"1.19", "gateway-ingress", slice, []string{slice}, []string{"create endpointslices", deletion}},
		{"1.18", "gateway-ingress", endpoints, []string{slice, endpoints}, []string{"create endpoints"}},
		{"1.20", "gateway-ingress", slice, []string{slice, endpoints}, nil},
		{"1.17", "all-features", slice, []string{slice}, []string{deletion}},
	} {
		before, last := len(w.placeholderWrites()), fmt.Sprint("last-", i)
		o := w.underChart(last, run.release, run.values)
		w.awaitPlaceholders("own", run.own...)
		writes := w.placeholderWrites()[before:]
		w.apply(simple(last, last+".example.com", "front"))
		w.awaitPlaceholders(last, run.last)
		w.awaitServed(last)
		w.CheckHealthy(o)
		o.Stop()
		w.must(w.Core.NetworkingV1().Ingresses(w.Namespace).Delete(t.Context(), last, metav1.DeleteOptions{}))
		if !slices.Equal(writes, run.writes) {
			t.Errorf("run %d, under the role of %s: %q, want %q", i, run.release, writes, run.writes)
		}
	}

	if s := w.slice("own"); s.Labels[ingressLabel] != "true" || s.Labels[discoveryv1.LabelServiceName] != namePrefix+"own" || !*s.Endpoints[0].Conditions.Ready {
		t.Errorf("number 19: it has the labels %v and the endpoints %v", s.Labels, s.Endpoints)
	}
	// ING-20: it is as the original has it.
	has, left := w.placeholder(slice, "own"), referencetest.Left(t, "1.20", "ingress.yaml", "ing", slice, namePrefix+"own")
	if diff := cmp.Diff(referencetest.Content(left), referencetest.Content(has)); diff != "" {
		t.Errorf("ING-20: %s", diff)
	}
}

// Number 20 of the contract's ingress.md; ENV-26 and ING-22: where both kinds are allowed, an Ingress does not wait for the one that is not written; it has a placeholder
// at any time, and loses both kinds with its load balancer.
func TestPlaceholderOfOtherKind(t *testing.T) {
	w := newWorld(t)
	w.apply(simple("own", "own.example.com", "front"))
	o := w.underChart("older", "1.18", "gateway-ingress")
	w.awaitPlaceholders("own", "Endpoints")
	o.Stop()
	before := len(w.placeholderWrites())
	held := w.Proxy.HoldWatch(t, "endpoints", 0)
	o = w.underChart("both", "1.19", "gateway-ingress")
	w.awaitPlaceholders("own", "EndpointSlice", "Endpoints")
	w.apply(simple("last", "last.example.com", "front"))
	w.awaitPlaceholders("last", "EndpointSlice")
	w.awaitServed("last")
	held.Remove(t)
	w.awaitPlaceholders("own", "EndpointSlice")
	want := []string{"create endpointslices", "create endpointslices", "delete endpoints " + namePrefix + "own"}
	if diff := cmp.Diff(want, w.placeholderWrites()[before:]); diff != "" {
		t.Errorf("ING-21: %s", diff)
	}

	foreign := &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Name: namePrefix + "foreign", Labels: map[string]string{discoveryv1.LabelServiceName: "front"}}, AddressType: discoveryv1.AddressTypeIPv4}
	v6 := &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Name: namePrefix + "v6", Labels: map[string]string{ingressLabel: "true"}}, AddressType: discoveryv1.AddressTypeIPv6}
	for _, s := range []*discoveryv1.EndpointSlice{foreign, v6} {
		created, err := w.Core.DiscoveryV1().EndpointSlices(w.Namespace).Create(t.Context(), s, metav1.CreateOptions{})
		w.must(err)
		name := strings.TrimPrefix(s.Name, namePrefix)
		w.apply(simple(name, name+".example.com", "front"))
		operatortest.Eventually(t, "ENV-29: what is another's is reported", func() bool { return strings.Contains(o.Degraded("ingress.objects"), s.Name+" exists") })
		if is := w.slice(name); is.ResourceVersion != created.ResourceVersion {
			t.Errorf("ENV-29: it is %v", is)
		}
		w.must(w.Core.NetworkingV1().Ingresses(w.Namespace).Delete(t.Context(), name, metav1.DeleteOptions{}))
		operatortest.Eventually(t, "nothing is degraded", func() bool { return o.Degraded("ingress") == "" })
	}

	w.patch("own", `{"spec":{"ingressClassName":"nginx"}}`)
	w.awaitDedicated("own", false)
	w.CheckHealthy(o)
}

// ENV-27: a role that changes while the operator runs. What is refused tells; those that wrote nothing follow.
func TestRoleChanges(t *testing.T) {
	w := newWorld(t)
	w.apply(simple("own", "own.example.com", "front"))
	o := w.underChart("user", "1.18", "gateway-ingress")
	w.awaitPlaceholders("own", "Endpoints")
	w.changeRole("user-"+w.Namespace, "1.20")
	w.apply(simple("last", "last.example.com", "front"))
	w.awaitPlaceholders("last", "EndpointSlice")
	w.awaitServed("last")
	w.awaitPlaceholders("own", "EndpointSlice", "Endpoints")
	operatortest.Eventually(t, "nothing is degraded", func() bool { return o.Degraded("") == "" })
	for _, r := range w.Proxy.Requests(t, 0) {
		if r.Status == 403 && r.Resource != "endpoints" {
			t.Errorf("forbidden: %s %s", r.Verb, r.Path)
		}
	}
}

// changeRole gives a user the role of the chart of another release, and waits until the API server knows.
func (w *world) changeRole(user, release string) {
	w.T.Helper()
	roles := w.Core.RbacV1().ClusterRoles()
	role, err := roles.Get(w.T.Context(), user, metav1.GetOptions{})
	w.must(err)
	role.Rules = stockchart.RoleIn(w.T, release, "gateway-ingress")
	_, err = roles.Update(w.T.Context(), role, metav1.UpdateOptions{})
	w.must(err)
	operatortest.Eventually(w.T, "Endpoints are forbidden", func() bool {
		told, err := w.Core.AuthorizationV1().SubjectAccessReviews().Create(w.T.Context(), &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
			User: user, ResourceAttributes: &authorizationv1.ResourceAttributes{Namespace: w.Namespace, Verb: "create", Version: corev1.SchemeGroupVersion.Version, Resource: "endpoints"},
		}}, metav1.CreateOptions{})
		return err == nil && !told.Status.Allowed
	})
}

// Number 20 of the contract's ingress.md; ENV-24: nothing is written of the placeholders that the original of 1.20 has left. Those of 1.19 belong to no Service, and get
// its name.
func TestPlaceholdersOfOriginal(t *testing.T) {
	w := newWorld(t)
	w.Restore(referencetest.State(t, "1.20", "ingress.yaml", w.Namespace)...)
	older := w.apply(simple("older", "older.example.com", "front"))
	_, err := w.Core.DiscoveryV1().EndpointSlices(w.Namespace).Create(t.Context(), &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Name: namePrefix + older.Name, Labels: map[string]string{ingressLabel: "true"},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "networking.k8s.io/v1", Kind: "Ingress", Name: older.Name, UID: older.UID, Controller: new(true)}},
		},
		AddressType: discoveryv1.AddressTypeIPv4,
		Endpoints:   []discoveryv1.Endpoint{{Addresses: []string{"192.192.192.192"}}},
		Ports:       []discoveryv1.EndpointPort{{Port: new(int32(9999))}},
	}, metav1.CreateOptions{})
	w.must(err)
	o := w.underChart("user", "1.20", "gateway-ingress")
	operatortest.Eventually(t, "the EndpointSlice of 1.19 is of its Service", func() bool {
		return w.slice(older.Name).Labels[discoveryv1.LabelServiceName] == namePrefix+older.Name
	})
	w.apply(simple("last", "last.example.com", "front"))
	w.awaitPlaceholders("last", "EndpointSlice")
	w.awaitServed("last")
	if diff := cmp.Diff([]string{"update endpointslices " + namePrefix + older.Name, "create endpointslices"}, w.placeholderWrites()); diff != "" {
		t.Error(diff)
	}
	if got := o.Degraded("ingress.placeholders"); got != "" {
		t.Error(got)
	}
}
