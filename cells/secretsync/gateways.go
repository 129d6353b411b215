// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package secretsync

import (
	"context"
	"maps"
	"reflect"
	"slices"
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
	ours    map[string]bool                       // by class; one that does not exist has no entry
	granted map[string]map[string]*referenceGrant // by namespace and name
	into    map[string]map[referrer]bool          // what refers to Secrets of another namespace, by that
	of      map[referrer][]string                 // those namespaces
}

// referrer is a Gateway or a ListenerSet.
type referrer struct {
	isSet bool
	key   slim.Key
}

func newGatewaySource(
	c envoy.Config, p *k8s.Permissions, n *secretref.Names, g stream.Resource[gateway], ls stream.Resource[listenerSet], gc stream.Resource[gatewayClass], rg stream.Resource[referenceGrant],
) secretref.SourceOut {
	return secretref.SourceOut{Source: &gatewaySource{
		config: c, permissions: p, names: n,
		gateways: secretref.NewWatch(g, "spec").Optional(), sets: secretref.NewWatch(ls, "spec").Optional(), classes: secretref.NewWatch(gc, "spec").Optional(), grants: secretref.NewWatch(rg, "spec").Optional(),
		all: map[slim.Key]*gateway{}, allSets: map[slim.Key]*listenerSet{}, ours: map[string]bool{}, granted: map[string]map[string]*referenceGrant{},
		into: map[string]map[referrer]bool{}, of: map[referrer][]string{},
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

// grantChanged records what refers to Secrets of the namespace of a ReferenceGrant, if that permits something else now.
func (s *gatewaySource) grantChanged(ch stream.Change[referenceGrant], r secretref.Recorder) {
	s.mu.Lock()
	defer s.mu.Unlock()
	in := s.granted[ch.Key.Namespace]
	was := in[ch.Key.Name]
	switch {
	case ch.Kind == stream.Delete:
		delete(in, ch.Key.Name)
	case was != nil && reflect.DeepEqual(was.Spec, ch.Object.Spec):
		return
	default:
		if in == nil {
			in = map[string]*referenceGrant{}
			s.granted[ch.Key.Namespace] = in
		}
		in[ch.Key.Name] = ch.Object
	}
	if len(in) == 0 {
		delete(s.granted, ch.Key.Namespace)
	}
	for of := range s.into[ch.Key.Namespace] {
		if of.isSet {
			s.recordSet(s.allSets[of.key], r)
		} else {
			s.record(s.all[of.key], r)
		}
	}
}

// refersTo keeps to which other namespaces an object refers, none if it is gone.
func (s *gatewaySource) refersTo(from referrer, namespaces map[string]bool) {
	for _, namespace := range s.of[from] {
		if delete(s.into[namespace], from); len(s.into[namespace]) == 0 {
			delete(s.into, namespace)
		}
	}
	if s.of[from] = slices.Collect(maps.Keys(namespaces)); len(namespaces) == 0 {
		delete(s.of, from)
	}
	for namespace := range namespaces {
		if s.into[namespace] == nil {
			s.into[namespace] = map[referrer]bool{}
		}
		s.into[namespace][from] = true
	}
}

func (s *gatewaySource) gatewayChanged(ch stream.Change[gateway], r secretref.Recorder) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if ch.Kind == stream.Delete {
		delete(s.all, ch.Key)
		s.refersTo(referrer{key: ch.Key}, nil)
		r.Set(aboutGateway(ch.Object))
	} else {
		s.all[ch.Key] = ch.Object
		s.refersTo(referrer{key: ch.Key}, others(ch.Object.Spec.Listeners, ch.Key.Namespace))
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
		s.refersTo(referrer{true, ch.Key}, nil)
		r.Set(aboutSet(ch.Object))
		return
	}
	s.allSets[ch.Key] = ch.Object
	s.refersTo(referrer{true, ch.Key}, others(ch.Object.Spec.Listeners, ch.Key.Namespace))
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
		r.SetUnknown(aboutGateway(g))
		return
	}
	r.Set(aboutGateway(g), s.ofClass(g, "Gateway", g.Namespace.String(), g.Spec.Listeners)...)
}

// recordSet records the references of a ListenerSet. They stay while it, or its Gateway, cannot be decoded, and while it is too large.
func (s *gatewaySource) recordSet(set *listenerSet, r secretref.Recorder) {
	if set.CannotDecode("spec") || set.IsCut() {
		r.SetUnknown(aboutSet(set))
		return
	}
	var to []secretref.Object
	if g := s.all[set.gateway()]; g != nil {
		namespace := set.Namespace.String()
		switch {
		case g.CannotDecode("spec"):
			r.SetUnknown(aboutSet(set))
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

// others are the other namespaces to which listeners of an object of one refer.
func others(listeners []listener, namespace string) map[string]bool {
	all := map[string]bool{}
	for _, key := range certificates(listeners, namespace) {
		if key.Namespace != namespace {
			all[key.Namespace] = true
		}
	}
	return all
}

// permitted are the certificates of listeners that an object of a kind and a namespace may refer to, each once.
func (s *gatewaySource) permitted(kind, namespace string, listeners []listener) (to []secretref.Object) {
	seen, names := map[slim.Key]bool{}, map[string]secretNames{}
	for _, key := range certificates(listeners, namespace) {
		if seen[key] {
			continue
		}
		seen[key] = true
		if key.Namespace != namespace {
			of, known := names[key.Namespace]
			if !known {
				of = s.namesFor(kind, namespace, key.Namespace)
				names[key.Namespace] = of
			}
			if !of.all && !of.some[key.Name] {
				continue
			}
		}
		to = append(to, secretref.Object{Kind: secretref.Secret, Key: key})
	}
	return to
}

// secretNames are the Secrets of a namespace to which objects may refer: all, or some.
type secretNames struct {
	all  bool
	some map[string]bool
}

// namesFor are the Secrets of a namespace to which objects of a kind and another one may refer.
func (s *gatewaySource) namesFor(kind, from, to string) secretNames {
	names := secretNames{some: map[string]bool{}}
	for _, grant := range s.granted[to] {
		if grant.isFor(kind, from) {
			names.all = grant.add(names.some) || names.all
		}
	}
	return names
}

func aboutGateway(g *gateway) corev1.ObjectReference { return about("Gateway", g.Meta) }

func aboutSet(s *listenerSet) corev1.ObjectReference { return about("ListenerSet", s.Meta) }

func about(kind string, m slim.Meta) corev1.ObjectReference {
	return corev1.ObjectReference{APIVersion: gatewayGroup + "/v1", Kind: kind, Namespace: m.Namespace.String(), Name: m.Name, UID: m.UID.API()}
}
