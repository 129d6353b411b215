// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package servicesync

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/skep-operator/skep/resources/globalnamespace"
	"github.com/skep-operator/skep/resources/stream"
	"github.com/skep-operator/skep/resources/stream/slim"
	"github.com/skep-operator/skep/resources/stream/streamtest"
	"github.com/skep-operator/skep/runtime/health"
	"github.com/skep-operator/skep/runtime/metrics"
)

func open(t testing.TB, services stream.Resource[service], slices stream.Resource[endpointSlice], log *slog.Logger) *controller {
	t.Helper()
	return openIn(t, local(t, namespace("test", "")), services, slices, log)
}

// openIn is open with other Namespaces than the one of the tests.
func openIn(t testing.TB, namespaces stream.Resource[slim.Namespace], services stream.Resource[service], slices stream.Resource[endpointSlice], log *slog.Logger) *controller {
	t.Helper()
	c := newController(params{
		Config: Config{EnableK8sEndpointSlice: true}, Cluster: cluster1, Services: services, Slices: slices, Namespaces: namespaces,
		Metrics: newMetrics(metrics.Factory{}), Health: health.NewTree().Reporter("servicesync"), Log: log,
	})
	if err := c.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	return c
}

// namespace is a Namespace with the annotation that says whether it is global, unless that is empty.
func namespace(name, annotation string) *slim.Namespace {
	n := &slim.Namespace{}
	if n.Name = name; annotation != "" {
		n.Annotations.Labels = slim.MakeLabels(map[string]string{globalnamespace.Annotation: annotation})
	}
	return n
}

func local[T any](t testing.TB, objs ...*T) *stream.Local[T] {
	t.Helper()
	l, err := stream.NewLocal[T]()
	if err != nil {
		t.Fatal(err)
	}
	l.Replace(objs...)
	return l
}

var echoKey = slim.Key{Namespace: "test", Name: "echo"}

// SSYNC-14: addresses that are none are left out, logged once and counted.
func TestInvalidAddresses(t *testing.T) {
	bad := decodeSlice(t, func(s *discoveryv1.EndpointSlice) { s.Endpoints[0].Addresses = []string{"10.0.1.5", "nonsense"} })
	slices := local(t, bad)
	var log bytes.Buffer
	c := open(t, local(t, decodeService(t, nil)), slices, slog.New(slog.NewTextHandler(&log, nil)))
	for range 2 {
		if value, known := c.Desired(echoKey); string(value) != echo || !known {
			t.Errorf("%t, %s", known, value)
		}
	}
	if n := strings.Count(log.String(), "\n"); n != 1 || !strings.Contains(log.String(), "service=test/echo addresses=nonsense") {
		t.Errorf("%d messages: %s", n, log.String())
	}
	if len(c.invalid) != 1 {
		t.Errorf("invalid: %v", c.invalid)
	}
	slices.Upsert(decodeSlice(t, nil))
	if value, _ := c.Desired(echoKey); string(value) != echo || len(c.invalid) > 0 {
		t.Errorf("%s; invalid: %v", value, c.invalid)
	}
}

// SSYNC-14: the key of a Service stays as it is while nothing can be decoded of the Service, or of a slice that may be one
// of its.
func TestUndecodable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server, gvr := streamtest.NewServer(), streamtest.Widgets
		server.Serve(gvr, "Widget", true)
		put := func(name, spec string) {
			meta := map[string]any{"name": name, "namespace": "test", "annotations": map[string]any{globalAnnotation: "true"}}
			object := map[string]any{"metadata": meta, "spec": any(7), "endpoints": any(7)}
			if spec != "" {
				object["spec"], object["endpoints"] = map[string]any{"type": "ClusterIP", "clusterIP": spec}, []any{}
			}
			server.Put(gvr, object)
		}
		put("bad", "")
		put("good", "10.0.0.1")
		services, err := stream.New(stream.NewSource(server.Connect()), stream.Custom[service](gvr))
		if err != nil {
			t.Fatal(err)
		}
		defer services.Close()
		slices, err := stream.New(stream.NewSource(server.Connect()), stream.Custom[endpointSlice](gvr))
		if err != nil {
			t.Fatal(err)
		}
		defer slices.Close()
		c := open(t, services, slices, slog.New(slog.DiscardHandler))
		check := func(name string, exists, known bool) {
			t.Helper()
			if value, ok := c.Desired(slim.Key{Namespace: "test", Name: name}); ok != known || (value != nil) != exists {
				t.Errorf("%s: %t, %s", name, ok, value)
			}
		}
		check("bad", false, false)
		check("absent", false, true)
		check("good", true, true)
		put("good-slice", "")
		synctest.Wait()
		check("good", false, false)
		server.Delete(gvr, slim.Key{Namespace: "test", Name: "good-slice"})
		server.Delete(gvr, slim.Key{Namespace: "test", Name: "bad"})
		synctest.Wait()
		check("good", true, true)
		check("bad", false, true)
	})
}

// SSYNC-19 and SSYNC-20: a Service has no key in a Namespace that is not global, and keeps what it has while that is not known. A
// change of the Namespace concerns the Services that could have a key.
func TestScopes(t *testing.T) {
	namespaces := local[slim.Namespace](t)
	other := decodeService(t, func(s *corev1.Service) { s.Name, s.Annotations = "other", nil })
	c := openIn(t, namespaces, local(t, decodeService(t, nil), other), local(t, decodeSlice(t, nil)), slog.New(slog.DiscardHandler))
	for _, step := range []struct {
		annotation    string
		exists, known bool
	}{{"-", false, false}, {"", true, true}, {"false", false, true}, {"nonsense", false, true}, {"FALSE", false, true}, {"true", true, true}} {
		if step.annotation != "-" {
			namespaces.Upsert(namespace("test", step.annotation))
		}
		if value, known := c.Desired(echoKey); (string(value) == echo) != step.exists || known != step.known {
			t.Errorf("%q: %t, %s", step.annotation, known, value)
		}
		if value, known := c.Desired(other.Key()); value != nil || !known {
			t.Errorf("%q: a Service that is not global: %t, %s", step.annotation, known, value)
		}
	}
	if keys := c.namespaceChanged(stream.Change[slim.Namespace]{Key: slim.Key{Name: "test"}}); len(keys) != 1 || keys[0] != echoKey {
		t.Errorf("a change concerns %v", keys)
	}
	if keys := c.namespaceChanged(stream.Change[slim.Namespace]{Key: slim.Key{Name: "another"}}); len(keys) > 0 {
		t.Errorf("a change of another one concerns %v", keys)
	}
}

// A decision costs the same among 10 and among 10,000 Services.
func TestDecisionCosts(t *testing.T) {
	cost := map[int]float64{}
	for _, count := range []int{10, 10_000} {
		var all []*service
		var slices []*endpointSlice
		for i := range count {
			name := fmt.Sprint("echo-", i)
			all = append(all, decodeService(t, func(s *corev1.Service) { s.Name = name }))
			slices = append(slices, decodeSlice(t, func(s *discoveryv1.EndpointSlice) { s.Name, s.Labels[discoveryv1.LabelServiceName] = name, name }))
		}
		c := open(t, local(t, all...), local(t, slices...), slog.New(slog.DiscardHandler))
		key := slim.Key{Namespace: "test", Name: "echo-7"}
		if value, known := c.Desired(key); value == nil || !known {
			t.Fatal("the Service is not exported")
		}
		cost[count] = testing.AllocsPerRun(20, func() { c.Desired(key) })
		for range 9 { // the least of ten: allocations of other goroutines, and those after a collection, count as well
			cost[count] = min(cost[count], testing.AllocsPerRun(20, func() { c.Desired(key) }))
		}
	}
	if cost[10_000] > cost[10]+2 {
		t.Errorf("allocations: %v", cost)
	}
}

// SSYNC-27, K8S-24: the key of a Service with an EndpointSlice that is cut stays as it is, and so does that of the EndpointSlice.
func TestCutSlices(t *testing.T) {
	small := decodeSlice(t, nil)
	large := decodeSlice(t, nil)
	large.Name += "-2"
	if !slim.CutDown(large, 2<<20) || large.endpointText != "" || serviceOf(large) != echoKey {
		t.Fatal("it cannot be cut, or its Service is not known any more")
	}
	slices := local(t, small, large)
	c := open(t, local(t, decodeService(t, nil)), slices, slog.New(slog.DiscardHandler))
	if value, known := c.Desired(echoKey); known || value != nil || !c.tooLarge.Has(echoKey.String()) {
		t.Errorf("the key is to be %s, %t", value, known)
	}
	slices.Delete(large.Key())
	if value, known := c.Desired(echoKey); !known || value == nil || c.tooLarge.Has(echoKey.String()) {
		t.Errorf("without it the key is to be %s, %t", value, known)
	}
	whole := &wholeSlice{text: "x", of: slim.MakeString("echo")}
	if !slim.CutDown(whole, 2<<20) || whole.text != "" || whole.serviceKey().Name != "echo" {
		t.Error("that of other releases cannot be cut, or its Service is not known any more")
	}
}

// SSYNC-19, SSYNC-27: a Service that is cut, or an EndpointSlice of which is, has no key in a Namespace that is not global, nor without the annotation; and so it
// is with the keys of its EndpointSlices.
func TestCutInLocalNamespace(t *testing.T) {
	cutDown := func(obj any) {
		t.Helper()
		if !slim.CutDown(obj, 2<<20) {
			t.Fatal("it cannot be cut")
		}
	}
	large, slice := decodeService(t, nil), decodeSlice(t, nil)
	cutDown(large)
	cutDown(slice)
	whole := &wholeSlice{of: slim.MakeString(echoKey.Name)}
	whole.Namespace, whole.Name = slim.MakeString(echoKey.Namespace), "echo-1"
	cutDown(whole)
	for name, test := range map[string]struct {
		service *service
		slice   *endpointSlice
	}{
		"the Service":          {large, decodeSlice(t, nil)},
		"its EndpointSlice":    {decodeService(t, nil), slice},
		"both":                 {large, slice},
		"of the control plane": {nil, slice},
	} {
		key := echoKey
		if test.service == nil { // has none anywhere
			key.Name = "kube-scheduler"
			test.service = decodeService(t, func(s *corev1.Service) { s.Name = key.Name })
			cutDown(test.service)
		}
		namespaces, services := local[slim.Namespace](t), local(t, test.service)
		c := openIn(t, namespaces, services, local(t, test.slice), slog.New(slog.DiscardHandler))
		ofSlice := *whole
		ofSlice.of = slim.MakeString(key.Name)
		w := newSliceController(sliceParams{Cluster: cluster1, Services: services, Slices: local(t, &ofSlice), Namespaces: namespaces, Health: health.NewTree().Reporter("slices")})
		if err := w.Open(t.Context()); err != nil {
			t.Fatal(err)
		}
		check := func(when string, isKnown, isTooLarge bool) {
			t.Helper()
			isKnown = isKnown || key != echoKey
			if value, known := c.Desired(key); value != nil || known != isKnown {
				t.Errorf("%s, %s: the key of the Service is to be %s, %t", name, when, value, known)
			}
			if c.tooLarge.Has(key.String()) != (isTooLarge && key == echoKey) {
				t.Errorf("%s, %s: health has it as too large: %t", name, when, c.tooLarge.Has(key.String()))
			}
			if value, known := w.Desired(ofSlice.Key()); value != nil || known != isKnown {
				t.Errorf("%s, %s: the key of the EndpointSlice is to be %s, %t", name, when, value, known)
			}
		}
		namespaces.Upsert(namespace("test", ""))
		check("in a global Namespace", false, true)
		namespaces.Upsert(namespace("test", "false"))
		check("in another one", true, false)
		namespaces.Upsert(namespace("test", "true"))
		check("again in a global one", false, true)
		unshared := *test.service
		unshared.Annotations.Labels = slim.MakeLabels(map[string]string{globalAnnotation: "true", sharedAnnotation: "false"})
		services.Upsert(&unshared)
		check("not shared", true, false)
	}
}
