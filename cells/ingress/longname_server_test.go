// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package ingress

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v2 "github.com/skep-operator/skep/resources/api/v2"
	"github.com/skep-operator/skep/resources/domain/envoy"
	"github.com/skep-operator/skep/resources/operatortest"
)

// ENV-32; numbers 21 and 22 of the contract's ingress.md: an Ingress whose name is long is served, under the name of the release,
// and what it has under the other one is taken over. Of two, one stays.
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
	left.SetName(short)
	left.SetResourceVersion("")
	left.SetUID("")
	_, err = configs.Create(t.Context(), left, metav1.CreateOptions{})
	w.must(err)
	o = w.start("--cilium-release=1.20")
	operatortest.Eventually(t, "of two that of the release stays", exist(short))
	operatortest.Eventually(t, "and is written after the other one went", func() bool {
		c, err := configs.Get(t.Context(), short, metav1.GetOptions{})
		return err == nil && c.GetAnnotations()["skep.dev/replaces"] == long
	})
	w.CheckHealthy(o)
	w.patch(name, `{"spec":{"ingressClassName":"nginx"}}`)
	operatortest.Eventually(t, "none is left", exist())
}
