// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package gateway

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/skep-operator/skep/cells/gateway/internal/route"
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
	u, err := w.Dynamic.Resource(resource).Namespace(w.Namespace).Get(w.T.Context(), name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	w.must(err)
	return u
}

// awaitPlaceholders waits for the kinds of placeholders that a Service has.
func (w *world) awaitPlaceholders(name string, want ...string) {
	w.T.Helper()
	w.await("placeholders of "+name, strings.Join(want, ", "), func() string {
		return strings.Join(slices.DeleteFunc([]string{"EndpointSlice", "Endpoints"}, func(kind string) bool { return w.placeholder(kind, name) == nil }), ", ")
	})
}

// underChart starts an operator under the role that the chart of a release gives with some values.
func (w *world) underChart(user, release, values string) *operatortest.Operator {
	role := w.As(user, stockchart.RoleIn(w.T, release, values)...)
	return w.StartKnowing("gateways", func() *operatortest.Operator { return operatortest.Start(w.T, Cell, role, w.args()...) })
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

const (
	front        = "cilium-gateway-front"
	frontGateway = `
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: front}
spec:
  gatewayClassName: CLASS
  infrastructure: {labels: {team: blue}, annotations: {example.com/note: kept}}
  listeners: [{name: http, port: 80, protocol: HTTP}]
`
)

// Numbers 20 and 21 of the contract's gateway-api.md; GW-4, GW-46, GW-47: under the roles of the charts, one after another, the Service has the kind of placeholder that the role allows
// to write; what is left of the other kind goes where it may be deleted; and nothing is asked for that is forbidden.
func TestPlaceholders(t *testing.T) {
	const slice, endpoints = "EndpointSlice", "Endpoints"
	w := newWorld(t)
	w.apply(gateways.Resource(), frontGateway)
	deletion := "delete endpoints " + front
	for i, run := range []struct {
		release, values string
		has, writes     []string
	}{
		{"1.18", "gateway-ingress", []string{endpoints}, []string{"create endpoints"}},
		{"1.19", "gateway-ingress", []string{slice}, []string{"create endpointslices", deletion}},
		{"1.18", "gateway-ingress", []string{slice, endpoints}, []string{"create endpoints"}},
		{"1.20", "gateway-ingress", []string{slice, endpoints}, nil},
		{"1.17", "all-features", []string{slice}, []string{deletion}},
	} {
		before := len(w.placeholderWrites())
		o := w.underChart(fmt.Sprint("user-", i), run.release, run.values)
		w.awaitPlaceholders(front, run.has...)
		operatortest.Eventually(t, "there are a Service and a configuration", func() bool { return w.loadBalancer(front) != nil && w.config(front) != nil })
		w.awaitGateway("front", "Programmed", "False AddressNotAssigned: Gateway waiting for address")
		w.CheckHealthy(o)
		o.Stop()
		if got := w.placeholderWrites()[before:]; !slices.Equal(got, run.writes) {
			t.Errorf("run %d, under the role of %s: %q, want %q", i, run.release, got, run.writes)
		}
	}
	if s := w.placeholder(slice, front); s.GetLabels()[discoveryv1.LabelServiceName] != front || !strings.Contains(fmt.Sprint(s.Object["endpoints"]), "ready:true") {
		t.Errorf("number 20: it has the labels %v and the endpoints %v", s.GetLabels(), s.Object["endpoints"])
	}
	has, left := w.placeholder(slice, front), referencetest.Left(t, "1.20", "gateway-plain.yaml", "gw-plain", slice, front)
	if diff := cmp.Diff(referencetest.Content(left), referencetest.Content(has)); diff != "" {
		t.Errorf("GW-4: it is not as the original has it: %s", diff)
	}

	// ENV-26: Endpoints are not waited for. GW-2: the Gateway is another controller's.
	held := w.Proxy.HoldWatch(t, "endpoints", 0)
	o := w.underChart("both", "1.19", "gateway-ingress")
	w.apply(gateways.Resource(), strings.ReplaceAll(frontGateway, "front", "last"))
	w.awaitPlaceholders("cilium-gateway-last", slice)
	w.awaitGateway("last", "Programmed", "False AddressNotAssigned: Gateway waiting for address")
	held.Remove(t)
	w.apply(classes.Resource(), `{apiVersion: gateway.networking.k8s.io/v1, kind: GatewayClass, metadata: {name: NS-other}, spec: {controllerName: example.com/other}}`)
	w.patch(gateways.Resource(), "front", `{"spec":{"gatewayClassName":"`+w.Namespace+`-other"}}`)
	w.awaitPlaceholders(front)
	operatortest.Eventually(t, "GW-2: the Service is deleted", func() bool { return w.loadBalancer(front) == nil })
	w.CheckHealthy(o)
}

// Number 21 of the contract's gateway-api.md; ENV-24, ENV-28: nothing is written of the placeholders that the original of 1.20 has left,
// nor beside its EndpointSlices for TCP and UDP. Those of 1.19 belong to no Service, and get its name.
func TestPlaceholdersOfOriginal(t *testing.T) {
	w := newWorld(t)
	for _, file := range []string{"gamma", "gateway-https", "gateway-l4", "gateway-longname", "gateway-passthrough", "gateway-plain"} {
		objects := referencetest.State(t, "1.20", file+".yaml", w.namespace(file))
		for _, u := range objects {
			if u.GetKind() == route.KindGateway {
				w.must(unstructured.SetNestedField(u.Object, w.class, "spec", "gatewayClassName"))
			}
		}
		w.Restore(objects...)
	}
	const last = "cilium-gateway-older"
	older := w.apply(gateways.Resource(), strings.ReplaceAll(frontGateway, "front", "older"))
	_, err := w.Core.DiscoveryV1().EndpointSlices(w.Namespace).Create(t.Context(), &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Name: last, Labels: map[string]string{owningLabel: "older", gatewayLabel: "older"},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "gateway.networking.k8s.io/v1", Kind: route.KindGateway, Name: "older", UID: older.GetUID(), Controller: new(true)}},
		},
		AddressType: discoveryv1.AddressTypeIPv4,
		Endpoints:   []discoveryv1.Endpoint{{Addresses: []string{"192.192.192.192"}}},
		Ports:       []discoveryv1.EndpointPort{{Port: new(int32(9999))}},
	}, metav1.CreateOptions{})
	w.must(err)
	o := w.underChart("user", "1.20", "gateway-ingress")
	operatortest.Eventually(t, "all Gateways have a status", func() bool {
		all, err := w.Dynamic.Resource(gateways.Resource()).List(t.Context(), metav1.ListOptions{})
		w.must(err)
		return !slices.ContainsFunc(all.Items, func(u unstructured.Unstructured) bool {
			listeners, _, _ := unstructured.NestedSlice(u.Object, "status", "listeners")
			return len(listeners) == 0
		})
	})
	w.apply(gateways.Resource(), frontGateway)
	w.awaitPlaceholders(front, "EndpointSlice")
	w.awaitPlaceholders(last, "EndpointSlice")
	if s := w.placeholder("EndpointSlice", last); s.GetLabels()[discoveryv1.LabelServiceName] != last {
		t.Errorf("that of 1.19 has the labels %v", s.GetLabels())
	}
	if diff := cmp.Diff([]string{"update endpointslices " + last, "create endpointslices"}, w.placeholderWrites()); diff != "" {
		t.Error(diff)
	}
	if got := o.Degraded("gateway.placeholders"); got != "" {
		t.Error(got)
	}
}
