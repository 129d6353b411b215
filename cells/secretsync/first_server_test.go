// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package secretsync

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"sigs.k8s.io/yaml"

	v2 "github.com/skep-operator/skep/resources/api/v2"
	"github.com/skep-operator/skep/resources/networkpolicy"
	"github.com/skep-operator/skep/resources/operatortest"
)

// SEC-24: what the oldest policies refer to is first, by their age and then their names. What an option refuses is not among it.
func TestSecretsOfTheOldestPolicies(t *testing.T) {
	var all []*networkpolicy.Policy
	for _, text := range []string{
		`{metadata: {name: p, namespace: aa, creationTimestamp: "2024-01-01T00:00:02Z"}, spec: {egress: [{toPorts: [{terminatingTLS: {secret: {namespace: aa, name: third}}}]}]}}`,
		`{metadata: {name: q, namespace: bb, creationTimestamp: "2024-01-01T00:00:01Z"}, spec: {egress: [{toPorts: [{terminatingTLS: {secret: {namespace: aa, name: borrowed}}}, {originatingTLS: {secret: {namespace: bb, name: second}}}]}]}}`,
		`{metadata: {name: c, creationTimestamp: "2024-01-01T00:00:01Z"}, specs: [{ingress: [{toPorts: [{terminatingTLS: {secret: {namespace: aa, name: first}}}]}]}]}`,
	} {
		raw, err := yaml.YAMLToJSON([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		p := &networkpolicy.Policy{}
		if err := json.Unmarshal(raw, p); err != nil {
			t.Fatal(err)
		}
		p.Trim()
		all = append(all, p)
	}
	for own, want := range map[bool]string{
		false: "[Secret aa/first Secret aa/borrowed Secret bb/second Secret aa/third]", true: "[Secret aa/first Secret bb/second Secret aa/third]",
	} {
		if got := fmt.Sprint(initialOf(all, own)); got != want {
			t.Errorf("of their own alone %t: %s, want %s", own, got, want)
		}
	}
}

// SEC-24; numbers 2.1 and 2.2 of the contract's tenants.md: at a start, what network policies refer to has the plain name, which agents compute, before Ingresses are
// given names, and of two policies that of the older one, also where their watch is late. So no younger object has its key where agents find that of the policy, whether or
// not the Secret exists. What a policy does not refer to any more is given to others.
func TestPoliciesHaveTheirNamesFirst(t *testing.T) {
	w := newWorld(t)
	near := &world{Env: &operatortest.Env{T: w.T, Core: w.Core, Dynamic: w.Dynamic, Proxy: w.Proxy, Namespace: w.Namespace + "-b"}, copies: w.copies}
	near.CreateNamespace()
	policy := func(w *world, name, secret string) {
		w.apply(v2.CiliumNetworkPolicyResource, w.Namespace, fmt.Sprintf(`{apiVersion: cilium.io/v2, kind: CiliumNetworkPolicy, metadata: {name: %s}, spec: {
			endpointSelector: {}, egress: [{toPorts: [{ports: [{port: "443", protocol: TCP}], terminatingTLS: {secret: {namespace: %s, name: %s}}}]}]}}`, name, w.Namespace, secret))
	}
	for _, secret := range []string{"c", "d", "e"} {
		policy(w, secret, "b-"+secret)
	}
	w.secret("b-c", "older")
	time.Sleep(time.Until(time.Now().Truncate(time.Second).Add(time.Second))) // what follows is younger, as the API server has it
	for _, secret := range []string{"c", "d"} {
		near.secret(secret, "younger")
		near.ingress(secret, secret)
	}
	near.secret("e", "younger")
	policy(near, "a", "e") // its name would be the first
	held := w.Proxy.HoldWatch(t, v2.CiliumNetworkPolicyResource.Resource, time.Second)
	o := w.start("--enable-policy-secrets-sync")
	w.awaitCopy("the policy has the plain name", "b-c", "older")
	for _, secret := range []string{"c", "d"} {
		if name := near.awaitServed("an Ingress has another name", secret, "younger"); name == near.Namespace+"-"+secret {
			t.Errorf("Ingress %s is served with %s, which a policy needs", secret, name)
		}
	}
	near.awaitEvent("the younger policy is reported", "SecretNotCopied", "a")
	held.Remove(t)
	w.secret("b-d", "older")
	w.secret("b-e", "older")
	for _, secret := range []string{"b-d", "b-e"} {
		w.awaitCopy("the policy has the plain name", secret, "older")
	}
	operatortest.Eventually(t, "health names the younger policy", func() bool { return o.Degraded("secretsync") != "" })
}
