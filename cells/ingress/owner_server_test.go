// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package ingress

import (
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/skep-operator/skep/resources/explain"
	"github.com/skep-operator/skep/resources/operatortest"
)

// ING-24, ENV-33; numbers 1.1, 1.3 and 1.5 of the contract's tenants.md: a host belongs to the oldest Ingress that names it. The younger
// one of another namespace has its longer paths, both are told, and the option joins them.
func TestHostsBelongToTheOldest(t *testing.T) {
	w := newWorld(t)
	ctx := t.Context()
	other := w.Namespace + "-bb"
	_, err := w.Core.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: other}}, metav1.CreateOptions{})
	w.must(err)
	_, err = w.Core.CoreV1().Services(other).Create(ctx, &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "front"}, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}},
	}, metav1.CreateOptions{})
	w.must(err)
	w.apply(simple("zz-older", "shop.test", "front"))
	time.Sleep(1100 * time.Millisecond) // times of creation are whole seconds
	younger := &networkingv1.Ingress{}
	w.must(yaml.UnmarshalStrict([]byte(`
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {name: aa-younger}
spec:
  ingressClassName: cilium
  tls: [{hosts: [shop.test], secretName: tls}]
  rules:
  - host: shop.test
    http:
      paths:
      - {path: /, pathType: Prefix, backend: {service: {name: front, port: {number: 80}}}}
      - {path: /sub, pathType: Prefix, backend: {service: {name: front, port: {number: 80}}}}
`), younger))
	api := w.Core.NetworkingV1().Ingresses(other)
	_, err = api.Create(ctx, younger, metav1.CreateOptions{})
	w.must(err)

	event := func(namespace, name, reason, text string) bool {
		list, err := w.Core.CoreV1().Events(namespace).List(ctx, metav1.ListOptions{FieldSelector: "involvedObject.name=" + name + ",reason=" + reason})
		w.must(err)
		for _, e := range list.Items {
			if strings.Contains(e.Message, text) {
				return true
			}
		}
		return false
	}
	shared := func(table string) []string {
		if c := w.shared(); c != nil {
			return routes(c, table, "shop.test")
		}
		return nil
	}
	o := w.start("--ingress-default-lb-mode=shared")
	operatortest.Eventually(t, "the younger one has its longer path, and the older one the host", func() bool {
		return strings.Join(shared("insecure"), " ") == "/sub → "+other+":front:80 / → "+w.Namespace+":front:80"
	})
	if got := shared("secure"); len(got) != 0 {
		t.Errorf("1.5: HTTPS of the host has %q", got)
	}
	operatortest.Eventually(t, "both are told", func() bool {
		return event(other, "aa-younger", "HostOfAnother", w.Namespace+"/zz-older") && event(w.Namespace, "zz-older", "HostOfThis", other+"/aa-younger")
	})
	if !slices.ContainsFunc(o.Book.For("Ingress", other, "aa-younger").Events, func(e explain.Event) bool { return strings.Contains(e.Message, w.Namespace+"/zz-older") }) {
		t.Error("explain does not name the owner")
	}
	if o.Metric("ingress_host_conflicts") != 1 {
		t.Error("the metric does not count it")
	}
	const line = "hosts of some of them belong to older Ingresses of other namespaces"
	if text := o.HealthText(); !strings.Contains(text, "OK       conflicts: 1 Ingresses do not have a host") || !strings.Contains(text, "at first "+other+"/aa-younger;") {
		t.Errorf("health does not name it:\n%s", text)
	}
	w.CheckHealthy(o)
	w.apply(simple("more", "more.test", "front"))
	w.awaitRoutes(w.shared, "more.test", "/ → NS:front:80")
	w.must(w.Core.NetworkingV1().Ingresses(w.Namespace).Delete(ctx, "zz-older", metav1.DeleteOptions{}))
	operatortest.Eventually(t, "without the older one the younger one has the host", func() bool {
		return strings.Join(shared("secure"), " ") == "/sub → "+other+":front:80 / → "+other+":front:80"
	})
	operatortest.Eventually(t, "health names none", func() bool { return !strings.Contains(o.HealthText(), "conflicts") })
	if n, all := o.Log().Count(`"level":"warning"`, line, `"ingresses":1`), o.Log().Count(line); n != 1 || all != 1 {
		t.Errorf("the log has %d lines with one Ingress, of %d", n, all)
	}
	o.Stop()

	w.apply(simple("zz-older", "shop.test", "front"))
	o = w.start("--ingress-default-lb-mode=shared", "--ingress-join-namespaces")
	operatortest.Eventually(t, "the option joins them", func() bool {
		all, plain := strings.Join(shared("secure"), " "), strings.Join(shared("insecure"), " ")
		return strings.Contains(all, other+":front:80") && strings.Contains(plain, "https")
	})
	if o.Log().Count(line) > 0 {
		t.Error("the log has what they lose, and they lose nothing")
	}
}
