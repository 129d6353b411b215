// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package secretsync

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v2 "github.com/skep-operator/skep/resources/api/v2"
	"github.com/skep-operator/skep/resources/operatortest"
)

// SEC-15; number 2.4 of the contract's tenants.md: a policy that uses a Secret of another namespace is told so, and an option refuses it.
func TestPoliciesThatBorrowSecrets(t *testing.T) {
	w := newWorld(t)
	ctx := t.Context()
	w.secret("own", "own")
	other := w.Namespace + "-bb"
	_, err := w.Core.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: other}}, metav1.CreateOptions{})
	w.must(err)
	for name, namespace := range map[string]string{"borrows": other, "owns": w.Namespace} {
		w.apply(v2.CiliumNetworkPolicyResource, namespace, fmt.Sprintf(`
apiVersion: cilium.io/v2
kind: CiliumNetworkPolicy
metadata: {name: %s}
spec:
  endpointSelector: {}
  egress: [{toPorts: [{ports: [{port: "443", protocol: TCP}], terminatingTLS: {secret: {namespace: %s, name: own}}}]}]
`, name, w.Namespace))
	}
	events := func(namespace, policy, reason string) int {
		list, err := w.Core.CoreV1().Events(namespace).List(ctx, metav1.ListOptions{FieldSelector: "involvedObject.name=" + policy + ",reason=" + reason})
		w.must(err)
		return len(list.Items)
	}
	o := w.start("--enable-policy-secrets-sync")
	w.awaitCopy("it is copied", "own", "own")
	operatortest.Eventually(t, "the author is told", func() bool { return events(other, "borrows", "SecretOfAnotherNamespace") == 1 })
	if events(w.Namespace, "owns", "SecretOfAnotherNamespace") != 0 {
		t.Error("so is the owner")
	}
	w.CheckHealthy(o)
	o.Stop()
	w.must(w.Dynamic.Resource(v2.CiliumNetworkPolicyResource).Namespace(w.Namespace).Delete(ctx, "owns", metav1.DeleteOptions{}))
	o = w.start("--enable-policy-secrets-sync", "--policy-secrets-own-namespace-only")
	operatortest.Eventually(t, "it is refused", func() bool { return events(other, "borrows", "SecretRefused") == 1 })
	w.awaitNone("there is no copy", "own")
	w.CheckHealthy(o)
}

// SEC-15; number 2.4 of the contract's tenants.md: with the option, what an Ingress has copied is not under the name that agents compute for a policy of
// another namespace that names it. When the option comes, the copy gets its other name before the one that is served goes.
func TestServedKeysAreHidden(t *testing.T) {
	was := renameGrace
	t.Cleanup(func() { renameGrace = was }) // after the operators have stopped
	renameGrace = 5 * time.Second
	w := newWorld(t)
	ctx := t.Context()
	for _, name := range []string{"served", "both"} {
		w.secret(name, name)
		w.ingress(name, name)
	}
	other := w.Namespace + "-bb"
	_, err := w.Core.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: other}}, metav1.CreateOptions{})
	w.must(err)
	for secret, namespace := range map[string]string{"served": other, "both": w.Namespace} {
		w.apply(v2.CiliumNetworkPolicyResource, namespace, fmt.Sprintf(`
apiVersion: cilium.io/v2
kind: CiliumNetworkPolicy
metadata: {name: p}
spec:
  endpointSelector: {}
  egress: [{toPorts: [{ports: [{port: "443", protocol: TCP}], terminatingTLS: {secret: {namespace: %s, name: %s}}}]}]
`, w.Namespace, secret))
	}
	o := w.start("--enable-policy-secrets-sync")
	for _, name := range []string{"served", "both"} {
		if at := w.awaitServed("it is served", name, name); at != w.Namespace+"-"+name {
			t.Errorf("%s is served with %s", name, at)
		}
	}
	o.Stop()
	before := len(w.Proxy.Requests(t, 0))
	o = w.start("--enable-policy-secrets-sync", "--policy-secrets-own-namespace-only")
	w.awaitNone("no policy finds what is served", "served")
	for _, name := range []string{"served", "both"} {
		if at := w.awaitServed("it is served", name, name); strings.Contains(at, "-") {
			t.Errorf("%s is served with %s", name, at)
		}
	}
	w.awaitCopy("a policy of its namespace finds it", "both", "both")
	written := 0
	for _, r := range w.Proxy.Requests(t, 0)[before:] {
		switch {
		case r.Resource == v2.CiliumEnvoyConfigResource.Resource && r.Verb == "update", r.Resource == "secrets" && r.Verb == "create":
			written++
		case r.Resource == "secrets" && r.Verb == "delete" && written < 4:
			t.Errorf("%s goes after %d writes", r.Name, written)
		}
	}
	w.CheckHealthy(o)
}
