// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package secretsync

import (
	"context"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

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
		o.Spec.Secrets = envoy.MakeSecretNames("copies/" + copyName)
		return o
	}
	went, stays := configuration("went", "team-prod-tls"), configuration("stays", "team-prod-web")
	names := secretref.NewNames()
	means := &meanings{own: "kube-system", names: names}
	names.LimitPins(means.mayBe)
	names.MarkKnown()
	s := &configurationSource{
		namespace: "copies", counts: func(*envoy.Object) bool { return true }, own: "kube-system", names: names, meanings: means, refer: means,
		pinned: map[slim.Key]pinned{}, many: map[string]int{}, reported: map[string]bool{},
		configurations: configurationsAt{initial: []*envoy.Object{went, stays}, followed: []*envoy.Object{stays}},
	}
	s.PinAll(t.Context())
	if len(s.pinned) != 2 {
		t.Fatalf("%d configurations hold names in place of 2", len(s.pinned))
	}
	s.Follow(t.Context(), nil)
	for name, want := range map[string]bool{"tls": true, "web": false} {
		of := secretref.Object{Kind: secretref.Secret, Key: slim.Key{Namespace: "team-prod", Name: name}}
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

// SEC-14: of two copies of a Secret the one that a configuration has stays as long as it has it, though the Secret has another that a policy needs.
func TestCopiesThatConfigurationsHaveStay(t *testing.T) {
	was := renameGrace
	t.Cleanup(func() { renameGrace = was }) // after the operator has stopped
	renameGrace = 2 * time.Second
	w := newWorld(t)
	w.defineGateways()
	w.Clear(gatewayKind.Resource(), classKind.Resource(), v2.CiliumEnvoyConfigResource)
	w.secret("own", "own")
	for _, name := range []string{"named", "free"} {
		_, err := w.Core.CoreV1().Secrets(w.copies).Create(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{
			"secretsync.cilium.io/owning-secret-namespace": w.Namespace, "secretsync.cilium.io/owning-secret-name": "own",
		}}, Data: map[string][]byte{"tls.crt": []byte("own")}}, metav1.CreateOptions{})
		w.must(err)
	}
	w.apply(v2.CiliumEnvoyConfigResource, w.Namespace, fmt.Sprintf(`{apiVersion: cilium.io/v2, kind: CiliumEnvoyConfig, metadata: {name: left, ownerReferences: [
		{apiVersion: x/v1, kind: Gateway, name: g, uid: u, controller: true}]}, spec: {resources: [{"@type": type.googleapis.com/envoy.config.listener.v3.Listener,
		name: listener, filterChains: [{transportSocket: {name: envoy.transport_sockets.tls, typedConfig: {commonTlsContext: {
		tlsCertificateSdsSecretConfigs: [{name: %s/named, sdsConfig: {resourceApiVersion: V3}}]}}}}]}]}}`, w.copies))
	w.apply(v2.CiliumNetworkPolicyResource, w.Namespace, `{apiVersion: cilium.io/v2, kind: CiliumNetworkPolicy, metadata: {name: p}, spec: {
		endpointSelector: {}, egress: [{toPorts: [{ports: [{port: "443", protocol: TCP}], terminatingTLS: {secret: {namespace: `+w.Namespace+`, name: own}}}]}]}}`)
	exists := func(name string) bool {
		_, err := w.Core.CoreV1().Secrets(w.copies).Get(t.Context(), name, metav1.GetOptions{})
		return err == nil
	}
	o := w.start("--enable-gateway-api", "--enable-policy-secrets-sync")
	w.awaitCopy("a policy needs it", "own", "own")
	operatortest.Eventually(t, "the copy that no configuration has goes", func() bool { return !exists("free") })
	w.patchSecret(w.Namespace, "own", `{"stringData":{"tls.crt":"new"}}`)
	operatortest.Eventually(t, "the one that a configuration has stays, and follows its Secret", func() bool {
		s, err := w.Core.CoreV1().Secrets(w.copies).Get(t.Context(), "named", metav1.GetOptions{})
		return err == nil && string(s.Data["tls.crt"]) == "new"
	})
	w.must(w.Dynamic.Resource(v2.CiliumEnvoyConfigResource).Namespace(w.Namespace).Delete(t.Context(), "left", metav1.DeleteOptions{}))
	operatortest.Eventually(t, "it goes when the configuration has gone", func() bool { return !exists("named") })
	w.CheckHealthy(o)
}
