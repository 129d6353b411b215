// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package ingress

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/skep-operator/skep/resources/operatortest"
)

// large is an Ingress with thousands of paths.
func large(name string, paths int) *networkingv1.Ingress {
	i := &networkingv1.Ingress{ObjectMeta: metav1.ObjectMeta{Name: name}}
	i.Spec.IngressClassName = new(string)
	*i.Spec.IngressClassName = "cilium"
	rule := networkingv1.IngressRule{Host: name + ".large.test", IngressRuleValue: networkingv1.IngressRuleValue{HTTP: &networkingv1.HTTPIngressRuleValue{}}}
	kind := networkingv1.PathTypePrefix
	for n := range paths {
		rule.HTTP.Paths = append(rule.HTTP.Paths, networkingv1.HTTPIngressPath{
			Path: fmt.Sprintf("/path-%d", n), PathType: &kind,
			Backend: networkingv1.IngressBackend{Service: &networkingv1.IngressServiceBackend{Name: "front", Port: networkingv1.ServiceBackendPort{Number: 80}}},
		})
	}
	i.Spec.Rules = []networkingv1.IngressRule{rule}
	return i
}

const smallIngress = `
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {name: %[1]s}
spec:
  ingressClassName: cilium
  rules: [{host: %[1]s.example.com, http: {paths: [{path: /, pathType: Prefix, backend: {service: {name: front, port: {number: 80}}}}]}}]
`

// ING-23, ENV-30; numbers 3.3 of the contract's tenants.md: what does not fit into the shared configuration is left out, of the namespace
// that has most, the youngest first, and everybody else's change is written.
func TestSharedConfigurationIsPacked(t *testing.T) {
	w := newWorld(t)
	ctx := t.Context()
	other := w.Namespace + "-bb"
	_, err := w.Core.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: other}}, metav1.CreateOptions{})
	w.must(err)
	_, err = w.Core.CoreV1().Services(other).Create(ctx, &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "front"}, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}},
	}, metav1.CreateOptions{})
	w.must(err)
	w.apply(fmt.Sprintf(smallIngress, "one"))
	o := w.start("--ingress-default-lb-mode=shared")
	w.awaitRoutes(w.shared, "one.example.com", "/ → NS:front:80")
	api := w.Core.NetworkingV1().Ingresses(other)
	for _, name := range []string{"first", "second"} {
		_, err = api.Create(ctx, large(name, 6000), metav1.CreateOptions{})
		w.must(err)
		time.Sleep(time.Second) // so that the second is younger
	}
	events := func(name string) bool {
		list, err := w.Core.CoreV1().Events(other).List(ctx, metav1.ListOptions{FieldSelector: "involvedObject.name=" + name + ",reason=LeftOut"})
		w.must(err)
		return len(list.Items) == 1 && strings.Contains(list.Items[0].Message, "it is not served: with its ")
	}
	operatortest.Eventually(t, "the second is told", func() bool { return events("second") })
	operatortest.Eventually(t, "the first is served", func() bool { return len(routes(w.shared(), "insecure", "first.large.test")) == 6000 })
	if events("first") || len(routes(w.shared(), "insecure", "second.large.test")) != 0 {
		t.Error("the wrong one is left out")
	}
	if d := o.Degraded("ingress"); !strings.Contains(d, "second") || strings.Contains(d, "one:") {
		t.Errorf("health says:\n%s", d)
	}

	began := time.Now()
	w.apply(fmt.Sprintf(smallIngress, "two"))
	w.must(w.Core.NetworkingV1().Ingresses(w.Namespace).Delete(ctx, "one", metav1.DeleteOptions{}))
	w.awaitRoutes(w.shared, "two.example.com", "/ → NS:front:80")
	w.awaitRoutes(w.shared, "one.example.com")
	operatortest.Soon(t, "changes of others are written", began)

	w.must(api.Delete(ctx, "first", metav1.DeleteOptions{}))
	operatortest.Eventually(t, "then the second is served", func() bool { return len(routes(w.shared(), "insecure", "second.large.test")) == 6000 })
	operatortest.Eventually(t, "health is well", func() bool { return o.Degraded("ingress") == "" })
}

// named is an Ingress with a path for each of so many hosts, whose names are as long as they may be.
func named(name string, hosts int) *networkingv1.Ingress {
	i := large(name, 1)
	http := i.Spec.Rules[0].HTTP
	i.Spec.Rules = nil
	for n := range hosts {
		long := strings.Repeat(strings.Repeat("x", 60)+".", 3)
		i.Spec.Rules = append(i.Spec.Rules, networkingv1.IngressRule{Host: fmt.Sprintf("%s-%05d.%stest", name, n, long), IngressRuleValue: networkingv1.IngressRuleValue{HTTP: http}})
	}
	return i
}

// ING-31, K1 and K3 of the contract's tenants.md: the names alone of what is left out would be larger than a configuration. Other namespaces, of which one has all hosts, are served meanwhile.
func TestNamesOfSharedArePacked(t *testing.T) {
	w := newWorld(t)
	ctx := t.Context()
	other := w.Namespace + "-bb"
	_, err := w.Core.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: other}}, metav1.CreateOptions{})
	w.must(err)
	for i := range 12 {
		_, err = w.Core.NetworkingV1().Ingresses(other).Create(ctx, named(fmt.Sprint("many-", i), 500), metav1.CreateOptions{})
		w.must(err)
	}
	all := large("all", 1)
	all.Spec.Rules[0].Host = ""
	_, err = w.Core.NetworkingV1().Ingresses(w.Namespace).Create(ctx, all, metav1.CreateOptions{})
	w.must(err)
	w.start("--ingress-default-lb-mode=shared")
	w.awaitRoutes(w.shared, "*", "/path-0 → NS:front:80")
	began := time.Now()
	w.apply(fmt.Sprintf(smallIngress, "two"))
	w.awaitRoutes(w.shared, "two.example.com", "/ → NS:front:80")
	operatortest.Soon(t, "changes of others are written", began)
}
