// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package cluster

import (
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/watch"
)

// sliceOf is an EndpointSlice of the Service derived-a.
func sliceOf(name string, ready bool, addresses ...string) *unstructured.Unstructured {
	endpoints := []any{}
	for _, address := range addresses {
		endpoints = append(endpoints, map[string]any{"addresses": []any{address}, "conditions": map[string]any{"ready": ready}})
	}
	u := &unstructured.Unstructured{Object: map[string]any{"endpoints": endpoints}}
	u.SetName(name)
	u.SetLabels(map[string]string{"kubernetes.io/service-name": "derived-a"})
	return u
}

func serviceWith(clusterIP string, spec map[string]any) *unstructured.Unstructured {
	spec["clusterIP"] = clusterIP
	u := &unstructured.Unstructured{Object: map[string]any{"spec": spec}}
	u.SetName("derived-a")
	return u
}

// A backend is lost at the event after which nothing has it any more, and at no other.
func TestBackendsOfDerivedServices(t *testing.T) {
	key, value := derivedServiceKey("derived-a"), `{"backends":{"10.0.0.1":{},"10.0.0.2":{}}}`
	for name, c := range map[string]struct {
		then func(d *derivedBackends)
		lost []string
	}{
		"nothing happens": {func(*derivedBackends) {}, nil},
		"one moves to another EndpointSlice": {func(d *derivedBackends) {
			d.handleSlice(watch.Added, sliceOf("two", true, "10.0.0.2"))
			d.handleSlice(watch.Modified, sliceOf("one", true, "10.0.0.1"))
		}, nil},
		"one is in none for a moment": {func(d *derivedBackends) {
			d.handleSlice(watch.Modified, sliceOf("one", true, "10.0.0.1"))
			d.handleSlice(watch.Added, sliceOf("two", true, "10.0.0.2"))
		}, []string{"10.0.0.2 in EndpointSlices"}},
		"both are not ready": {func(d *derivedBackends) {
			d.handleSlice(watch.Modified, sliceOf("one", false, "10.0.0.1", "10.0.0.2"))
		}, []string{"10.0.0.1 in EndpointSlices", "10.0.0.2 in EndpointSlices"}},
		"one may go": {func(d *derivedBackends) {
			d.release("10.0.0.2")
			d.handleSlice(watch.Deleted, sliceOf("one", true))
		}, []string{"10.0.0.1 in EndpointSlices"}},
		"the key has one": {func(d *derivedBackends) {
			d.handleKey(false, key, `{"backends":{"10.0.0.2":{}}}`)
			d.handleKey(false, key, value)
		}, []string{"10.0.0.1 in etcd"}},
		"the key goes": {func(d *derivedBackends) { d.handleKey(true, key, "") }, []string{"10.0.0.1 in etcd", "10.0.0.2 in etcd"}},
		"the key of an EndpointSlice goes": {func(d *derivedBackends) {
			d.handleKey(true, "cilium/state/endpointslices/v1/cluster1/bench/derived-a-1", "")
		}, []string{"the key cilium/state/endpointslices/v1/cluster1/bench/derived-a-1"}},
		"the Service has another address": {func(d *derivedBackends) {
			d.handleService(watch.Modified, serviceWith("172.20.0.2", map[string]any{}))
		}, []string{"10.0.0.1 in Service derived-a", "10.0.0.2 in Service derived-a"}},
		"the Service selects pods": {func(d *derivedBackends) {
			d.handleService(watch.Modified, serviceWith("172.20.0.1", map[string]any{"selector": map[string]any{"app": "a"}}))
		}, []string{"10.0.0.1 in Service derived-a", "10.0.0.2 in Service derived-a"}},
	} {
		t.Run(name, func(t *testing.T) {
			d := newDerivedBackends()
			d.handleService(watch.Added, serviceWith("172.20.0.1", map[string]any{}))
			d.handleSlice(watch.Added, sliceOf("one", true, "10.0.0.1", "10.0.0.2"))
			d.handleKey(false, key, value)
			if err := d.expect(1); err != nil {
				t.Fatal(err)
			}
			if c.then(d); !slices.Equal(d.missed(), c.lost) {
				t.Errorf("lost are %q, want %q", d.missed(), c.lost)
			}
		})
	}
	d := newDerivedBackends()
	d.handleSlice(watch.Added, sliceOf("one", true, "10.0.0.1"))
	if d.expect(1) == nil {
		t.Error("a Service with one backend, and without a key, is as expected")
	}
}
