// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package builtin

import (
	"flag"
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
)

var update = flag.Bool("update", false, "write types.txt")

// types.txt has each type of k8s.io/api that is an object, with its resource.
func TestTypes(t *testing.T) {
	var lines []string
	for kind, typ := range scheme.Scheme.AllKnownTypes() {
		_, isObject := reflect.New(typ).Interface().(metav1.Object)
		if !isObject || !strings.HasPrefix(typ.PkgPath(), "k8s.io/api/") {
			continue
		}
		plural, _ := meta.UnsafeGuessKindToResource(kind)
		lines = append(lines, fmt.Sprintf("%s %s.%s.%s\n", typeName(typ), plural.Resource, plural.Version, plural.Group))
	}
	slices.Sort(lines)
	want := strings.Join(lines, "")
	if *update {
		if err := os.WriteFile("types.txt", []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if typesText != want {
		t.Error("types.txt is not what client-go knows: go test ./resources/builtin -update, and read the difference")
	}
}

func TestResources(t *testing.T) {
	core := func(resource string) schema.GroupVersionResource {
		return corev1.SchemeGroupVersion.WithResource(resource)
	}
	for _, test := range []struct {
		obj  any
		want []schema.GroupVersionResource
	}{
		{&corev1.Pod{}, []schema.GroupVersionResource{core("pods")}},
		{&corev1.Node{}, []schema.GroupVersionResource{core("nodes")}},
		{&appsv1.Deployment{}, []schema.GroupVersionResource{appsv1.SchemeGroupVersion.WithResource("deployments")}},
		{&corev1.PodSpec{}, nil},
		{&struct{ Pod int }{}, nil},
	} {
		if got := ResourcesOf(test.obj); !slices.Equal(got, test.want) {
			t.Errorf("%T: %v, want %v", test.obj, got, test.want)
		}
	}
	if !Has(core("nodes")) || Has(core("ciliumnodes")) || Has(schema.GroupVersionResource{Group: "cilium.io", Version: "v2", Resource: "nodes"}) {
		t.Error("nodes alone are built in")
	}
	if names := ResourcesOfGroup("coordination.k8s.io"); !slices.Contains(names, "leases") || slices.Contains(names, "pods") {
		t.Errorf("resources of coordination.k8s.io: %v", names)
	}
	if names := ResourcesOfGroup("cilium.io"); len(names) != 0 {
		t.Errorf("resources of cilium.io: %v", names)
	}
}
