// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package secretsync

import (
	"context"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/skep-operator/skep/resources/envoy"
	"github.com/skep-operator/skep/resources/k8s"
	"github.com/skep-operator/skep/resources/reconcile"
	"github.com/skep-operator/skep/resources/secretref"
	"github.com/skep-operator/skep/resources/stream"
	"github.com/skep-operator/skep/resources/stream/slim"
)

// gatewaySource reports the certificates of Gateways of our classes and of the ListenerSets that they allow, those of other
// namespaces if a ReferenceGrant permits it. Of a Gateway whose class does not exist it reports those that have a copy: what is served stays until
// it is known whose the Gateway is. Where the role does not allow to read ListenerSets, they are not served either.
type gatewaySource struct {
	config      envoy.Config
	permissions *k8s.Permissions
	names       *secretref.Names
	gateways    *secretref.Watch[gateway]
	sets        *secretref.Watch[listenerSet]
	classes     *secretref.Watch[gatewayClass]
	grants      *secretref.Watch[referenceGrant]

	mu      sync.Mutex
	all     map[slim.Key]*gateway
	allSets map[slim.Key]*listenerSet
	ours    map[string]bool // by class; one that does not exist has no entry
	granted map[slim.Key]*referenceGrant
}

func newGatewaySource(
	c envoy.Config, p *k8s.Permissions, n *secretref.Names, g stream.Resource[gateway], ls stream.Resource[listenerSet], gc stream.Resource[gatewayClass], rg stream.Resource[referenceGrant],
) secretref.SourceOut {
	return secretref.SourceOut{Source: &gatewaySource{
		config: c, permissions: p, names: n,
		gateways: secretref.NewWatch(g, "spec").Optional(), sets: secretref.NewWatch(ls, "spec").Optional(), classes: secretref.NewWatch(gc, "spec").Optional(), grants: secretref.NewWatch(rg, "spec").Optional(),
		all: map[slim.Key]*gateway{}, allSets: map[slim.Key]*listenerSet{}, ours: map[string]bool{}, granted: map[slim.Key]*referenceGrant{},
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
	err := secretref.AllComplete(s.gateways, s.classes, s.grants)
	if err == nil && !s.deniesSets() {
		err = s.sets.Complete()
	}
	return err
}

// deniesSets reports whether the role does not allow to read ListenerSets. That of releases without them does not.
func (s *gatewaySource) deniesSets() bool {
	of := k8s.Ref{Resource: setKind.Resource()}
	return s.permissions.Denies("list", of) || s.permissions.Denies("watch", of)
}

// deniedRetry is how often it is looked whether the role allows by now to read ListenerSets.
const deniedRetry = time.Minute

// followSets waits for the permission to read ListenerSets.
func (s *gatewaySource) followSets(ctx context.Context, r secretref.Recorder) {
	for s.deniesSets() {
		select {
		case <-time.After(deniedRetry):
		case <-ctx.Done():
			return
		}
	}
	s.sets.Follow(ctx, func(ch stream.Change[listenerSet]) { s.setChanged(ch, r) })
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
		func(ctx context.Context) { s.followSets(ctx, r) },
	})
}

func (s *gatewaySource) classChanged(ch stream.Change[gatewayClass], r secretref.Recorder) {
	s.mu.Lock()
	defer s.mu.Unlock()
	was, existed := s.ours[ch.Key.Name]
	if ch.Kind == stream.Delete {
		delete(s.ours, ch.Key.Name)
	} else {
		s.ours[ch.Key.Name] = ch.Object.Spec.ControllerName.String() == controllerName
	}
	if is, exists := s.ours[ch.Key.Name]; is != was || exists != existed {
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
	} else {
		s.all[ch.Key] = ch.Object
		s.record(ch.Object, r)
	}
	for _, set := range s.allSets {
		if set.gateway() == ch.Key {
			s.recordSet(set, r)
		}
	}
}

func (s *gatewaySource) setChanged(ch stream.Change[listenerSet], r secretref.Recorder) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if ch.Kind == stream.Delete {
		delete(s.allSets, ch.Key)
		r.Set(aboutSet(ch.Object))
		return
	}
	s.allSets[ch.Key] = ch.Object
	s.recordSet(ch.Object, r)
}

// recordAll records the references of all Gateways and ListenerSets. The caller has the lock.
func (s *gatewaySource) recordAll(r secretref.Recorder) {
	for _, g := range s.all {
		s.record(g, r)
	}
	for _, set := range s.allSets {
		s.recordSet(set, r)
	}
}

// record records the references of a Gateway. One that cannot be decoded, or is too large, keeps those that it had.
func (s *gatewaySource) record(g *gateway, r secretref.Recorder) {
	if g.CannotDecode("spec") || g.IsCut() {
		return
	}
	r.Set(aboutGateway(g), s.ofClass(g, "Gateway", g.Namespace.String(), g.Spec.Listeners)...)
}

// recordSet records the references of a ListenerSet. They stay while it, or its Gateway, cannot be decoded, and while it is too large.
func (s *gatewaySource) recordSet(set *listenerSet, r secretref.Recorder) {
	if set.CannotDecode("spec") || set.IsCut() {
		return
	}
	var to []secretref.Object
	if g := s.all[set.gateway()]; g != nil {
		namespace := set.Namespace.String()
		switch {
		case g.CannotDecode("spec"):
			return
		case g.mayAllow(namespace):
			to = s.ofClass(g, "ListenerSet", namespace, set.Spec.Listeners)
		}
	}
	r.Set(aboutSet(set), to...)
}

// ofClass are the certificates of listeners of an object of a kind and a namespace that belongs to a Gateway, by the class of that.
func (s *gatewaySource) ofClass(g *gateway, kind, namespace string, listeners []listener) (to []secretref.Object) {
	switch ours, exists := s.ours[g.Spec.GatewayClassName.String()]; {
	case ours:
		return s.permitted(kind, namespace, listeners)
	case exists: // it is another controller's
		return nil
	}
	for _, of := range s.permitted(kind, namespace, listeners) {
		if s.names.Has(s.Namespace(), of) {
			to = append(to, of)
		}
	}
	return to
}

// permitted are the certificates of listeners that an object of a kind and a namespace may refer to.
func (s *gatewaySource) permitted(kind, namespace string, listeners []listener) (to []secretref.Object) {
	for _, key := range certificates(listeners, namespace) {
		if key.Namespace == namespace || s.permits(kind, namespace, key) {
			to = append(to, secretref.Object{Kind: secretref.Secret, Key: key})
		}
	}
	return to
}

// permits reports whether objects of a kind and a namespace may refer to a Secret of another namespace.
func (s *gatewaySource) permits(kind, from string, to slim.Key) bool {
	for key, grant := range s.granted {
		if key.Namespace == to.Namespace && grant.permits(kind, from, to.Name) {
			return true
		}
	}
	return false
}

func aboutGateway(g *gateway) corev1.ObjectReference { return about("Gateway", g.Meta) }

func aboutSet(s *listenerSet) corev1.ObjectReference { return about("ListenerSet", s.Meta) }

func about(kind string, m slim.Meta) corev1.ObjectReference {
	return corev1.ObjectReference{APIVersion: gatewayGroup + "/v1", Kind: kind, Namespace: m.Namespace.String(), Name: m.Name, UID: m.UID.API()}
}
