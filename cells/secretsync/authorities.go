// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package secretsync

import (
	"context"

	corev1 "k8s.io/api/core/v1"

	"github.com/skep-operator/skep/resources/envoy"
	"github.com/skep-operator/skep/resources/k8s"
	"github.com/skep-operator/skep/resources/reconcile"
	"github.com/skep-operator/skep/resources/secretref"
	"github.com/skep-operator/skep/resources/stream"
	"github.com/skep-operator/skep/resources/stream/slim"
)

// authoritySource reports the ConfigMaps with the certificates of authorities that BackendTLSPolicies refer to, where the role
// allows to read both. ConfigMaps are watched once there is a BackendTLSPolicy.
type authoritySource struct {
	config      envoy.Config
	permissions *k8s.Permissions
	policies    *secretref.Watch[backendTLSPolicy]
	configMaps  *secretref.Watch[configMap]
	first       chan struct{} // has a value once there is a policy
}

func newAuthoritySource(c envoy.Config, p *k8s.Permissions, policies stream.Resource[backendTLSPolicy], maps stream.Resource[configMap]) secretref.SourceOut {
	return secretref.SourceOut{Source: &authoritySource{
		config: c, permissions: p, policies: secretref.NewWatch(policies, "spec").Optional(), configMaps: secretref.NewWatch(maps), first: make(chan struct{}, 1),
	}}
}

// Name implements secretref.Source.
func (*authoritySource) Name() string { return "backendtlspolicies" }

// Namespace implements secretref.Source.
func (s *authoritySource) Namespace() string { return s.config.GatewayAPISecretsNamespace }

// Kind implements secretref.Source.
func (*authoritySource) Kind() secretref.Kind { return secretref.ConfigMap }

// Complete implements secretref.Source.
func (s *authoritySource) Complete() error { return s.policies.Complete() }

// Follow implements secretref.Source.
func (s *authoritySource) Follow(ctx context.Context, r secretref.Recorder) {
	if s.denied() {
		return
	}
	reconcile.RunTogether(ctx, []func(context.Context){
		func(ctx context.Context) {
			s.policies.Follow(ctx, func(ch stream.Change[backendTLSPolicy]) { s.policyChanged(ch, r) })
		},
		func(ctx context.Context) {
			select {
			case <-s.first:
			case <-ctx.Done():
				return
			}
			s.configMaps.Follow(ctx, func(ch stream.Change[configMap]) {
				r.Changed(secretref.Object{Kind: secretref.ConfigMap, Key: ch.Key})
			})
		},
	})
}

// denied reports whether the role does not allow what the source reads. That of releases without BackendTLSPolicies does not.
func (s *authoritySource) denied() bool {
	for _, resource := range []k8s.Ref{{Resource: tlsPolicyKind.Resource()}, {Resource: configMaps.Resource()}} {
		if s.permissions.Denies("list", resource) || s.permissions.Denies("watch", resource) {
			return true
		}
	}
	return false
}

func (s *authoritySource) policyChanged(ch stream.Change[backendTLSPolicy], r secretref.Recorder) {
	about := corev1.ObjectReference{
		APIVersion: gatewayGroup + "/v1", Kind: "BackendTLSPolicy", Namespace: ch.Key.Namespace, Name: ch.Key.Name, UID: ch.Object.UID.API(),
	}
	if ch.Kind == stream.Delete {
		r.Set(about)
		return
	}
	select {
	case s.first <- struct{}{}:
	default:
	}
	if ch.Object.CannotDecode("spec") {
		return
	}
	var to []secretref.Object
	for _, ref := range ch.Object.Spec.Validation.CACertificateRefs {
		if ref.Group.String() == "" && ref.Kind != nil && ref.Kind.String() == "ConfigMap" && ref.Name != "" {
			to = append(to, secretref.Object{Kind: secretref.ConfigMap, Key: slim.Key{Namespace: ch.Key.Namespace, Name: ref.Name}})
		}
	}
	r.Set(about, to...)
}
