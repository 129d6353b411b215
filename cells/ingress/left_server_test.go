// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package ingress

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/skep-operator/skep/resources/operatortest"
)

// SEC-21; number 2.1 of the contract's tenants.md: where the secrets of Ingresses are copied no more, no Ingress is served with a copy that was left of another
// Secret; the one that it is of is.
func TestCopiesThatAreLeft(t *testing.T) {
	w := newWorld(t)
	near := &world{&operatortest.Env{T: w.T, Core: w.Core, Dynamic: w.Dynamic, Proxy: w.Proxy, Namespace: w.Namespace + "-b"}} // a-b/c and a/b-c have copies of one plain name
	near.CreateNamespace()
	near.service(&corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "front"}, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}}})
	copies := strings.TrimLeft(w.Namespace[max(0, len(w.Namespace)-50):]+"-copies", "-")
	_, err := w.Core.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: copies}}, metav1.CreateOptions{})
	w.must(err)
	_, err = w.Core.CoreV1().Secrets(copies).Create(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: near.Namespace + "-c", Labels: map[string]string{
		"secretsync.cilium.io/owning-secret-namespace": near.Namespace, "secretsync.cilium.io/owning-secret-name": "c",
	}}}, metav1.CreateOptions{})
	w.must(err)
	serve := func(w *world, name, secret string) {
		w.apply(fmt.Sprintf(`
metadata: {name: %s}
spec:
  ingressClassName: cilium
  tls: [{hosts: [%s.test], secretName: %s}]
  rules: [{host: %s.test, http: {paths: [{path: /, pathType: Prefix, backend: {service: {name: front, port: {number: 80}}}}]}}]`, name, name, secret, name))
	}
	serve(near, "bank", "c")
	serve(w, "login", "b-c")
	serve(w, "other", "d")
	o := w.start("--enable-ingress-secrets-sync=false", "--ingress-secrets-namespace="+copies)
	for _, test := range []struct {
		w          *world
		name, want string
	}{{near, "bank", near.Namespace + "-c"}, {w, "login", near.Namespace + "-c-"}, {w, "other", w.Namespace + "-d"}} {
		operatortest.Eventually(t, fmt.Sprint(test.name, " is served with ", test.want), func() bool {
			c := test.w.dedicated(test.name)
			return c != nil && strings.Contains(strings.Join(chains(t, c), " "), fmt.Sprintf("%q", copies+"/"+test.want))
		})
	}
	w.CheckHealthy(o)
}
