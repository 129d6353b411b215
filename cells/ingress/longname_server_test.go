// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package ingress

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	v2 "github.com/skep-operator/skep/resources/api/v2"
	"github.com/skep-operator/skep/resources/domain/envoy"
	"github.com/skep-operator/skep/resources/operatortest"
)

// ENV-32 and ING-22; numbers 21 to 23 of the contract's ingress.md: an Ingress whose name is long is served, under the name of the release,
// and what it has under the other one is taken over. Of two, one stays. Of another class, it loses all that it has, under whichever name and of
// whichever kind.
func TestLongNames(t *testing.T) {
	w := newWorld(t)
	name := strings.Repeat("long", 20)
	long := namePrefix + w.Namespace + "-" + name
	short := envoy.Shorten(long)
	exist := func(names ...string) func() bool {
		return func() bool {
			return (w.config(long) != nil) == strings.Contains(strings.Join(names, " "), long) &&
				(w.config(short) != nil) == strings.Contains(strings.Join(names, " "), short)
		}
	}
	w.apply(simple(name, "b.example.com", "front"))
	o := w.start("--cilium-release=1.19")
	operatortest.Eventually(t, "1.19 has the long name", exist(long))
	if w.loadBalancer(name) != nil {
		t.Error("the Service has a name that is too long")
	}
	operatortest.Eventually(t, "the Service has a short name", func() bool { return w.loadBalancer(envoy.Shorten(namePrefix + name)[len(namePrefix):]) != nil })
	w.CheckHealthy(o)
	o.Stop()

	o = w.start("--cilium-release=1.20")
	w.apply(simple("web", "c.example.com", "front"))
	w.awaitDedicated("web", true)
	operatortest.Eventually(t, "1.20 goes on with it", exist(long))
	w.CheckHealthy(o)
	o.Stop()

	configs := w.Dynamic.Resource(v2.CiliumEnvoyConfigResource).Namespace(w.Namespace)
	left, err := configs.Get(t.Context(), long, metav1.GetOptions{})
	w.must(err)
	_, err = configs.Create(t.Context(), relocated(left, short), metav1.CreateOptions{})
	w.must(err)
	o = w.start("--cilium-release=1.20")
	operatortest.Eventually(t, "of two that of the release stays", exist(short))
	operatortest.Eventually(t, "and is written after the other one went", func() bool {
		c, err := configs.Get(t.Context(), short, metav1.GetOptions{})
		return err == nil && c.GetAnnotations()["skep.dev/replaces"] == long
	})
	w.CheckHealthy(o)
	o.Stop()

	_, err = configs.Create(t.Context(), relocated(left, long), metav1.CreateOptions{})
	w.must(err)
	service := envoy.Shorten(namePrefix + name)[len(namePrefix):]
	slice := w.slice(service)
	older := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Endpoints"}}
	older.SetName(slice.Name)
	older.SetLabels(map[string]string{ingressLabel: "true"})
	older.SetOwnerReferences(slice.OwnerReferences)
	_, err = w.Dynamic.Resource(ownedEndpoints.Resource()).Namespace(w.Namespace).Create(t.Context(), older, metav1.CreateOptions{})
	w.must(err)
	w.patch(name, `{"spec":{"ingressClassName":"nginx"}}`)
	o = w.start("--cilium-release=1.20")
	operatortest.Eventually(t, "number 23: none is left", exist())
	operatortest.Eventually(t, "number 23: nor is the Service or a placeholder", func() bool {
		return w.loadBalancer(service) == nil && w.slice(service) == nil && w.placeholder("Endpoints", service) == nil
	})
	w.CheckHealthy(o)
}

// relocated is an object under another name, to be created.
func relocated(u *unstructured.Unstructured, name string) *unstructured.Unstructured {
	u = u.DeepCopy()
	u.SetName(name)
	u.SetResourceVersion("")
	u.SetUID("")
	return u
}
