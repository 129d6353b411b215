// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package gateway

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/skep-operator/skep/cells/gateway/internal/route"
	"github.com/skep-operator/skep/resources/stream"
	"github.com/skep-operator/skep/resources/stream/slim"
)

// localStore is a store of objects.
func localStore[T any](t *testing.T, all ...*T) *stream.Store[T] {
	t.Helper()
	local, err := stream.NewLocal[T]()
	if err != nil {
		t.Fatal(err)
	}
	local.Replace(all...)
	store, err := local.Store(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return store
}

// mapping is a controller that maps changes of a cluster with a few routes, which have 32 parents, two backends of the Services a and b, and one by the
// ServiceImport remote, of the Service derived-1; and policies for a and b, with one ConfigMap.
func mapping(t *testing.T) *controller {
	t.Helper()
	var refs, targets []string
	for i := range 32 {
		refs = append(refs, fmt.Sprintf("{name: edge%d}", i))
	}
	var routes []*route.HTTP
	for i := range 10 {
		routes = append(routes, parse[route.HTTP](t, fmt.Sprintf(
			"{metadata: {name: r%d, namespace: shop}, spec: {parentRefs: [%s], rules: [{backendRefs: [{name: a, port: 80}, {name: b, port: 80}, {group: multicluster.x-k8s.io, kind: ServiceImport, name: remote, port: 80}]}]}}",
			i, strings.Join(refs, ", "))))
	}
	for _, service := range []string{"a", "b"} {
		for _, port := range []string{"", "one", "two"} {
			targets = append(targets, targetRef(service, port))
		}
	}
	var policies []*tlsPolicy
	for i := range 10 {
		policies = append(policies, policyFrom(t, fmt.Sprint("p", i), strings.Join(targets, ", "), caGood))
	}
	return &controller{
		seen: newSeen(), http: localStore(t, routes...), grpc: localStore[route.GRPC](t), gateways: localStore[gateway](t), policyStore: localStore(t, policies...),
		importStore: localStore(t, parse[serviceImport](t, fmt.Sprintf("{metadata: {name: remote, namespace: shop, annotations: {%s: derived-1}}}", route.DerivedAnnotation))),
	}
}

func serviceOf(name string) stream.Change[service] {
	s := &service{Spec: serviceSpec{Ports: []slim.ServicePort{{Port: 80}}}}
	s.Name = name
	s.Namespace = slim.MakeString("shop")
	return stream.Change[service]{Kind: stream.Upsert, Key: s.Key(), Object: s}
}

// K3 of the contract's tenants.md: what a change maps to has each key once, however many objects lead to it. A hundred policies with one ConfigMap, for
// the Services of many routes with many parents, were millions of keys.
func TestKeysAreThereOnce(t *testing.T) {
	const routes, policies, parents = 10, 10, 32
	c := mapping(t)
	p, _ := c.policyStore.Get(slim.Key{Namespace: "shop", Name: "p0"})
	i, _ := c.importStore.Get(slim.Key{Namespace: "shop", Name: "remote"})
	r, _ := c.http.Get(slim.Key{Namespace: "shop", Name: "r0"})
	m := &configMap{}
	m.Name, m.Namespace = "good", slim.MakeString("shop")
	for what, test := range map[string]struct {
		keys []slim.Key
		want int
	}{
		"a ConfigMap":       {c.configMapChanged(stream.Change[configMap]{Kind: stream.Upsert, Key: m.Key(), Object: m}), policies + parents},
		"a policy":          {c.policyChanged(stream.Change[tlsPolicy]{Kind: stream.Upsert, Key: p.Key(), Object: p}), policies + parents},
		"a Service":         {c.serviceChanged(serviceOf("a")), routes + parents + policies},
		"a ServiceImport":   {c.importChanged(stream.Change[serviceImport]{Kind: stream.Upsert, Key: i.Key(), Object: i}), routes + parents + policies},
		"a route":           {c.routeChanged(stream.Upsert, r.Route()), 1 + parents + policies},
		"the import kind":   {c.definitionChanged(stream.Change[definition]{Kind: stream.Upsert, Key: slim.Key{Name: "serviceimports.multicluster.x-k8s.io"}}), routes + parents + policies},
		"another Service":   {c.serviceChanged(serviceOf("other")), 0},
		"that of imports":   {c.serviceChanged(serviceOf("derived-1")), routes + parents + policies},
		"one alike to it":   {c.serviceChanged(serviceOf("derived-2")), 0},
		"another CRD's":     {c.definitionChanged(stream.Change[definition]{Kind: stream.Upsert, Key: slim.Key{Name: "others.example.com"}}), 0},
		"another ConfigMap": {c.configMapChanged(stream.Change[configMap]{Kind: stream.Upsert, Key: slim.Key{Namespace: "shop", Name: "other"}, Object: m}), 0},
	} {
		once := map[slim.Key]bool{}
		for _, key := range test.keys {
			once[key] = true
		}
		if len(test.keys) != test.want || len(once) != test.want {
			t.Errorf("%s: %d keys, %d of them once, want %d: %v", what, len(test.keys), len(once), test.want, test.keys)
		}
	}
	c.importStore = nil
	if keys := c.serviceChanged(serviceOf("derived-3")); len(keys) > 0 {
		t.Errorf("while no ServiceImport is known, a Service has %v", keys)
	}
}

func TestKeySet(t *testing.T) {
	s, want := &keySet{}, []slim.Key(nil)
	for i := range 3 * fewKeys {
		key := slim.Key{Name: fmt.Sprint(i)}
		s.add(key, key, slim.Key{Name: "0"})
		want = append(want, key)
	}
	if s.add(want...); !slices.Equal(s.all, want) {
		t.Errorf("%v", s.all)
	}
}

// K7 of the contract's tenants.md; GW-29: a route of which nothing is known concerns the Gateways alone that allow routes of its namespace, by themselves or
// by a ListenerSet.
func TestGatewaysOfHiddenRoutes(t *testing.T) {
	g := edgeOf(t, "{from: All}", "[{name: http, port: 80, protocol: HTTP}]")
	sets := localStore(t, setOf(t, "more", "bb", 0, "[{name: http, port: 81, protocol: HTTP}]"))
	for namespace, want := range map[string]bool{"infra": true, "bb": true, "cc": false} {
		if got := (knownSets{store: sets}).mayServe(g, namespace, objects{}.lookup); got != want {
			t.Errorf("%s: %t", namespace, got)
		}
	}
	if (knownSets{}).mayServe(g, "bb", objects{}.lookup) {
		t.Error("bb without a ListenerSet")
	}
	if !(knownSets{}).mayServe(edgeOf(t, "{from: None}", "[{name: http, port: 80, protocol: HTTP, allowedRoutes: {namespaces: {from: All}}}]"), "cc", objects{}.lookup) {
		t.Error("a listener for all")
	}
}

// K7 of the contract's tenants.md: the definitions have times that Go does not read. A status with one, which others may write, keeps no object out.
func TestStatusThatCannotBeDecoded(t *testing.T) {
	const condition = `[{"type":"Accepted","status":"True","reason":"A","message":"","lastTransitionTime":"2026-01-01t00:00:00z"}]`
	text := func(spec, status string) []byte {
		return fmt.Appendf(nil, `{"metadata":{"name":"x","namespace":"shop"},"spec":%s,"status":%s}`, spec, status)
	}
	s, err := slim.JSON[listenerSet]()
	if err != nil {
		t.Fatal(err)
	}
	set := &listenerSet{}
	if err := s.DecodeJSON(text(`{"parentRef":{"name":"edge"},"listeners":[{"name":"a","port":80,"protocol":"HTTP"}]}`, `{"conditions":`+condition+`}`), set); err != nil {
		t.Error(err)
	}
	if len(set.Spec.Listeners) != 1 || !set.CannotDecode("status") {
		t.Errorf("%+v", set)
	}
	if s.DecodeJSON(text(`{"parentRef":{"name":"edge"},"listeners":5}`, `{}`), &listenerSet{}) == nil {
		t.Error("without its listeners it is none")
	}
	p, err := slim.JSON[tlsPolicy]()
	if err != nil {
		t.Fatal(err)
	}
	policy := &tlsPolicy{}
	if err := p.DecodeJSON(text(`{"targetRefs":[{"group":"","kind":"Service","name":"a"}]}`, `{"ancestors":[{"conditions":`+condition+`}]}`), policy); err != nil {
		t.Error(err)
	}
	if len(policy.Spec.TargetRefs) != 1 || policy.DecodeError() != nil {
		t.Errorf("%+v", policy)
	}
	if p.DecodeJSON(text(`{"targetRefs":"all"}`, `{}`), &tlsPolicy{}) == nil {
		t.Error("without its targets it is none")
	}
}
