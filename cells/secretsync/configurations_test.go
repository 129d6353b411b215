// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package secretsync

import (
	"context"
	"testing"
	"time"

	v2 "github.com/skep-operator/skep/resources/api/v2"
	"github.com/skep-operator/skep/resources/clustertest"
	"github.com/skep-operator/skep/resources/envoy"
	"github.com/skep-operator/skep/resources/operatortest"
	"github.com/skep-operator/skep/resources/secretref"
	"github.com/skep-operator/skep/resources/stream"
	"github.com/skep-operator/skep/resources/stream/slim"
)

// configurationsAt is a watch of configurations: those of its initial state, and those that are there when it is followed.
type configurationsAt struct{ initial, followed []*envoy.Object }

// Initial implements configurationWatch.
func (c configurationsAt) Initial(_ context.Context, _ time.Duration, each func(*envoy.Object)) {
	for _, o := range c.initial {
		each(o)
	}
}

// Follow implements configurationWatch.
func (c configurationsAt) Follow(_ context.Context, changed func(stream.Change[envoy.Object]), synced ...func()) {
	for _, o := range c.followed {
		changed(stream.Change[envoy.Object]{Kind: stream.Upsert, Key: o.Key(), Object: o})
	}
	for _, f := range synced {
		f()
	}
}

// Complete implements configurationWatch.
func (configurationsAt) Complete() error { return nil }

// SEC-14: a configuration that went between the initial state and the first that is followed holds no name any more, one that is still there holds its own.
func TestConfigurationsThatWentHoldNoNames(t *testing.T) {
	configuration := func(name, copyName string) *envoy.Object {
		o := &envoy.Object{}
		o.Namespace, o.Name = slim.MakeString("team"), name
		o.Spec.Secrets = []string{"copies/" + copyName}
		return o
	}
	went, stays := configuration("went", "prod-tls"), configuration("stays", "prod-web")
	names := secretref.NewNames()
	names.MarkKnown()
	s := &configurationSource{
		namespace: "copies", counts: func(*envoy.Object) bool { return true }, own: "kube-system", names: names, pinned: map[slim.Key][]string{},
		configurations: configurationsAt{initial: []*envoy.Object{went, stays}, followed: []*envoy.Object{stays}},
	}
	s.PinAll(t.Context())
	if len(s.pinned) != 2 {
		t.Fatalf("%d configurations hold names in place of 2", len(s.pinned))
	}
	s.Follow(t.Context(), nil)
	for name, want := range map[string]bool{"tls": true, "web": false} {
		of := secretref.Object{Kind: secretref.Secret, Key: slim.Key{Namespace: "prod", Name: name}}
		if got := names.Of("copies", of); (got == of.CopyName()) != want {
			t.Errorf("%s has the copy %s", name, got)
		}
	}
	if len(s.pinned) != 1 {
		t.Errorf("%d configurations hold names in place of 1", len(s.pinned))
	}
}

// SEC-18: clusters that copy the secrets of policies alone may have no definition of CiliumEnvoyConfigs: nothing is degraded there, and secrets are copied.
func TestPoliciesWithoutConfigurations(t *testing.T) {
	w := newWorld(t)
	w.secret("own", "own")
	w.apply(v2.CiliumNetworkPolicyResource, w.Namespace, `{apiVersion: cilium.io/v2, kind: CiliumNetworkPolicy, metadata: {name: p}, spec: {
		endpointSelector: {}, egress: [{toPorts: [{ports: [{port: "443", protocol: TCP}], terminatingTLS: {secret: {namespace: `+w.Namespace+`, name: own}}}]}]}}`)
	operatortest.NewDefinitions(t, clustertest.Shared(t)).Delete(v2.CiliumEnvoyConfigResource.GroupResource().String())
	o := operatortest.Start(t, Cell, w.Kubeconfig(), "--enable-policy-secrets-sync", "--policy-secrets-namespace="+w.copies, "--gateway-api-secrets-namespace="+w.copies, "--ingress-secrets-namespace="+w.copies)
	w.awaitCopy("the secret of a policy is copied", "own", "own")
	w.CheckHealthy(o)
}
