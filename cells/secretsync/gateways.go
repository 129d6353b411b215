// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package secretsync

import (
	"context"
	"sync"

	corev1 "k8s.io/api/core/v1"

	"github.com/skep-operator/skep/resources/envoy"
	"github.com/skep-operator/skep/resources/reconcile"
	"github.com/skep-operator/skep/resources/secretref"
	"github.com/skep-operator/skep/resources/stream"
	"github.com/skep-operator/skep/resources/stream/slim"
)

// gatewaySource reports the certificates of Gateways of our classes, those of other namespaces if a ReferenceGrant permits it.
type gatewaySource struct {
	config   envoy.Config
	gateways *secretref.Watch[gateway]
	classes  *secretref.Watch[gatewayClass]
	grants   *secretref.Watch[referenceGrant]

	mu      sync.Mutex
	all     map[slim.Key]*gateway
	ours    map[string]bool // classes
	granted map[slim.Key]*referenceGrant
}

func newGatewaySource(c envoy.Config, g stream.Resource[gateway], gc stream.Resource[gatewayClass], rg stream.Resource[referenceGrant]) secretref.SourceOut {
	return secretref.SourceOut{Source: &gatewaySource{
		config:   c,
		gateways: secretref.NewWatch(g, "spec").Optional(), classes: secretref.NewWatch(gc, "spec").Optional(), grants: secretref.NewWatch(rg, "spec").Optional(),
		all: map[slim.Key]*gateway{}, ours: map[string]bool{}, granted: map[slim.Key]*referenceGrant{},
	}}
}

// Name implements secretref.Source.
func (*gatewaySource) Name() string { return "gateways" }

// Namespace implements secretref.Source.
func (s *gatewaySource) Namespace() string { return s.config.GatewayAPISecretsNamespace }

// Kind implements secretref.Source.
func (*gatewaySource) Kind() secretref.Kind { return secretref.Secret }

// Complete implements secretref.Source.
func (s *gatewaySource) Complete() error {
	return secretref.AllComplete(s.gateways, s.classes, s.grants)
}

// Follow implements secretref.Source.
func (s *gatewaySource) Follow(ctx context.Context, r secretref.Recorder) {
	reconcile.RunTogether(ctx, []func(context.Context){
		func(ctx context.Context) {
			s.classes.Follow(ctx, func(ch stream.Change[gatewayClass]) { s.classChanged(ch, r) })
		},
		func(ctx context.Context) {
			s.grants.Follow(ctx, func(ch stream.Change[referenceGrant]) { s.grantChanged(ch, r) })
		},
		func(ctx context.Context) {
			s.gateways.Follow(ctx, func(ch stream.Change[gateway]) { s.gatewayChanged(ch, r) })
		},
	})
}

func (s *gatewaySource) classChanged(ch stream.Change[gatewayClass], r secretref.Recorder) {
	s.mu.Lock()
	defer s.mu.Unlock()
	is := ch.Kind != stream.Delete && ch.Object.Spec.ControllerName.String() == controllerName
	if s.ours[ch.Key.Name] != is {
		s.ours[ch.Key.Name] = is
		s.recordAll(r)
	}
}

func (s *gatewaySource) grantChanged(ch stream.Change[referenceGrant], r secretref.Recorder) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.granted[ch.Key] = ch.Object; ch.Kind == stream.Delete {
		delete(s.granted, ch.Key)
	}
	s.recordAll(r)
}

func (s *gatewaySource) gatewayChanged(ch stream.Change[gateway], r secretref.Recorder) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if ch.Kind == stream.Delete {
		delete(s.all, ch.Key)
		r.Set(aboutGateway(ch.Object))
		return
	}
	s.all[ch.Key] = ch.Object
	s.record(ch.Object, r)
}

// recordAll records the references of all Gateways. The caller has the lock.
func (s *gatewaySource) recordAll(r secretref.Recorder) {
	for _, g := range s.all {
		s.record(g, r)
	}
}

// record records the references of a Gateway. One that cannot be decoded keeps those that it had.
func (s *gatewaySource) record(g *gateway, r secretref.Recorder) {
	if g.CannotDecode("spec") {
		return
	}
	var to []secretref.Object
	if s.ours[g.Spec.GatewayClassName.String()] {
		for _, key := range g.certificates() {
			if key.Namespace == g.Namespace.String() || s.permits(g.Namespace.String(), key) {
				to = append(to, secretref.Object{Kind: secretref.Secret, Key: key})
			}
		}
	}
	r.Set(aboutGateway(g), to...)
}

// permits reports whether Gateways of a namespace may refer to a Secret of another one.
func (s *gatewaySource) permits(from string, to slim.Key) bool {
	for key, grant := range s.granted {
		if key.Namespace == to.Namespace && grant.permits(from, to.Name) {
			return true
		}
	}
	return false
}

func aboutGateway(g *gateway) corev1.ObjectReference {
	return corev1.ObjectReference{
		APIVersion: gatewayGroup + "/v1", Kind: "Gateway", Namespace: g.Namespace.String(), Name: g.Name, UID: g.UID.API(),
	}
}
