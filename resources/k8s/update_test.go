// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package k8s

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

var services = corev1.SchemeGroupVersion.WithResource("services")

// What a deletion leaves is told to who observes writes: the revision of an object that finalizers hold, the uid of one that does
// not exist any more, by a deletion or the update that removes the last finalizer.
func TestDeletionsAreObserved(t *testing.T) {
	d := newDesk(t)
	var observed []string
	ctx := ObserveWrites(why(t), func(r Ref, revision uint64) {
		observed = append(observed, fmt.Sprintf("%s: revision %t, uid %t", r.Name, revision > 0, r.UID != ""))
	})
	observes := func(what string, want ...string) {
		t.Helper()
		if !slices.Equal(observed, want) {
			t.Errorf("%s: observed %q, want %q", what, observed, want)
		}
		observed = nil
	}
	for _, resource := range []schema.GroupVersionResource{configMaps, services} { // a Status answers the deletion of the former, an object that of the latter
		for name, finalizers := range map[string][]string{"free": nil, "held": {"example.com/a", "example.com/b"}} {
			u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": map[bool]string{true: "ConfigMap", false: "Service"}[resource == configMaps]}}
			if resource == services {
				u.Object["spec"] = map[string]any{"ports": []any{map[string]any{"port": int64(80)}}}
			}
			u.SetNamespace(d.namespace)
			u.SetName(name)
			u.SetFinalizers(finalizers)
			made, err := d.Create(ctx, resource, u)
			if err != nil {
				t.Fatal(err)
			}
			observes("a creation", name+": revision true, uid false")
			ref := Ref{Resource: resource, Namespace: d.namespace, Name: name, UID: made.GetUID()}
			if err := d.Delete(ctx, ref, Preconditions{}); err != nil {
				t.Fatal(err)
			}
			if finalizers == nil {
				observes("a deletion", "free: revision false, uid true")
				continue
			}
			observes("a deletion that finalizers hold up", "held: revision true, uid false")
			for i, want := range []string{"held: revision true, uid false", "held: revision false, uid true"} {
				_, _, err := d.Modify(ctx, ref, func(u *unstructured.Unstructured) error {
					u.SetFinalizers(u.GetFinalizers()[1:])
					return nil
				})
				if err != nil {
					t.Fatal(err)
				}
				observes(fmt.Sprint("without finalizer ", i), want)
			}
		}
	}
}

// K13 with the defaults of a real API server: a status that is as it should be is not
// written, a conflict is edited again, and another object of the name is not changed.
func TestUpdateWritesADifference(t *testing.T) {
	d := newDesk(t)
	service, err := Create(why(t), d, services, &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: d.namespace, Name: "s"},
		Spec:       corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer, Ports: []corev1.ServicePort{{Name: "http", Port: 80}}},
	})
	if err != nil || service.UID == "" || service.Spec.ClusterIP == "" {
		t.Fatalf("not as stored: %v, %v", service, err)
	}
	ref := Ref{Resource: services, Namespace: d.namespace, Name: "s", UID: service.UID}
	status := ref
	status.Subresource = "status"
	addresses := func(s *corev1.Service) error {
		s.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "192.0.2.1"}}
		return nil
	}
	ports := func(s *corev1.Service) error {
		AddFinalizer(s, "example.com/keep")
		s.Spec.Ports = []corev1.ServicePort{{Name: "http", Port: 80}, {Name: "https", Port: 443}}
		return nil
	}
	for name, write := range map[string]func(context.Context) (bool, error){
		"status": func(ctx context.Context) (bool, error) { return Update(ctx, d, status, addresses) },
		"spec":   func(ctx context.Context) (bool, error) { return Update(ctx, d, ref, ports) },
	} {
		var revision uint64
		ctx := ObserveWrites(why(t), func(r Ref, stored uint64) {
			if r != ref.byName() {
				t.Errorf("a write of %s", r)
			}
			revision = stored
		})
		if written, err := write(ctx); err != nil || !written || revision == 0 {
			t.Errorf("%s: written %v at %d, %v", name, written, revision, err)
		}
		d.verbs(t)
		if written, err := write(ctx); err != nil || written {
			t.Errorf("%s again: written %v, %v", name, written, err)
		}
		d.expect(t, name+" again", "get")
	}

	times := 0
	written, err := Update(why(t), d, ref, func(s *corev1.Service) error {
		if times++; times == 1 {
			if _, err := Update(why(t), d, ref, func(s *corev1.Service) error { metav1.SetMetaDataLabel(&s.ObjectMeta, "a", "1"); return nil }); err != nil {
				t.Error(err)
			}
		}
		RemoveFinalizer(s, "example.com/keep")
		return nil
	})
	if err != nil || !written || times != 2 {
		t.Errorf("after a conflict: written %v in %d edits, %v", written, times, err)
	}

	refused := errors.New("no")
	if _, err := Update(why(t), d, ref, func(*corev1.Service) error { return refused }); !errors.Is(err, refused) {
		t.Errorf("an edit that fails: %v", err)
	}
	for _, r := range []Ref{ref, status} {
		r.UID = types.UID("other")
		if _, err := Update(why(t), d, r, ports); !IsNotFound(err, r) || !strings.Contains(err.Error(), "uid other") {
			t.Errorf("another uid: %v", err)
		}
		if _, err := d.Get(t.Context(), r); !IsNotFound(err, r) {
			t.Errorf("another uid: %v", err)
		}
	}
	if _, err := Update(why(t), d, status, ports); err == nil || !strings.Contains(err.Error(), "is not a field of the subresource status") {
		t.Errorf("the spec by way of the status: %v", err)
	}
	other := func(s *corev1.Service) error {
		s.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "192.0.2.2"}}
		return nil
	}
	if _, err := Update(why(t), d, ref, other); err == nil || !strings.Contains(err.Error(), `Ref{Subresource: "status"}`) {
		t.Errorf("the status without its subresource: %v", err)
	}

	wrong := ref
	wrong.UID = "other"
	if err := Delete(why(t), d, wrong); err != nil {
		t.Errorf("deleting another uid: %v", err)
	}
	if _, err := d.Get(t.Context(), ref); err != nil {
		t.Errorf("deleted by another uid: %v", err)
	}
	for range 2 {
		if err := Delete(why(t), d, ref); err != nil {
			t.Error(err)
		}
	}
	if _, err := d.Get(t.Context(), ref); !IsNotFound(err, ref) {
		t.Errorf("deleted: %v", err)
	}
}
