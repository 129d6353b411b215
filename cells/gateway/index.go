// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package gateway

import (
	"slices"

	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/skep-operator/skep/resources/stream"
	"github.com/skep-operator/skep/resources/stream/slim"
)

// routeObject is a pointer to a route of one kind.
type routeObject[T any] interface {
	*T
	route() *route
}

// byParent finds routes by their parents.
func byParent[T any, P routeObject[T]]() *stream.Index[T, slim.Key] {
	return stream.NewIndex("parent", func(obj *T, add func(slim.Key)) {
		r := P(obj).route()
		for _, key := range r.parentKeys() {
			add(key)
		}
		if r.hasListenerSet() {
			add(anyListenerSet)
		}
	})
}

// byTarget finds routes by what they refer to, and by the other namespaces that they refer to.
func byTarget[T any, P routeObject[T]]() *stream.Index[T, slim.Key] {
	return stream.NewIndex("target", func(obj *T, add func(slim.Key)) {
		r := P(obj).route()
		keys := r.targets()
		for _, key := range keys {
			if key != anyImport && key.Namespace != r.Namespace.String() {
				keys = append(keys, namespaceKey(key.Namespace))
			}
		}
		addOnce(keys, add)
	})
}

// targets are the keys of what a route refers to as backends, with anyImport if a ServiceImport is among them.
func (r *route) targets() (keys []slim.Key) {
	r.backends(func(ref gatewayv1.BackendObjectReference) bool {
		kind, key := backendOf(r, ref)
		keys = append(keys, keyOf(kind, key))
		if kind == kindImport {
			keys = append(keys, anyImport)
		}
		return true
	})
	return keys
}

// byNamespace finds routes by their namespace.
func byNamespace[T any, P routeObject[T]]() *stream.Index[T, slim.Key] {
	return stream.NewIndex("namespace", func(obj *T, add func(slim.Key)) { add(namespaceKey(P(obj).route().Namespace.String())) })
}

// anyImport is the key of all ServiceImports, anyListenerSet that of all ListenerSets.
var (
	anyImport      = slim.Key{Name: kindImport + "/"}
	anyListenerSet = slim.Key{Name: kindListenerSet + "/"}
)

// namespaceKey is the key of a namespace: it cannot be that of an object in one.
func namespaceKey(name string) slim.Key { return slim.Key{Name: name} }

func addOnce(keys []slim.Key, add func(slim.Key)) {
	for i, key := range keys {
		if !slices.Contains(keys[:i], key) {
			add(key)
		}
	}
}

// parentKeys are the keys of the Gateways, ListenerSets and Services that a route refers to as its parents.
func (r *route) parentKeys() (keys []slim.Key) {
	for _, ref := range r.parents {
		if id, ok := r.parentID(ref); ok && !slices.Contains(keys, id) {
			keys = append(keys, id)
		}
	}
	return keys
}

// hasListenerSet reports whether a route refers to a ListenerSet as its parent.
func (r *route) hasListenerSet() bool {
	return slices.ContainsFunc(r.parents, func(ref gatewayv1.ParentReference) bool { return parentKind(ref) == kindListenerSet })
}

// routeKey is what routes are found by.
type routeKey int

const (
	routesByParent routeKey = iota
	routesByTarget
	routesByNamespace
)

// routeIndexes are the indexes of a kind of routes, by routeKey.
type routeIndexes[T any] [3]*stream.Index[T, slim.Key]

func newRouteIndexes[T any, P routeObject[T]]() *routeIndexes[T] {
	return &routeIndexes[T]{routesByParent: byParent[T, P](), routesByTarget: byTarget[T, P](), routesByNamespace: byNamespace[T, P]()}
}

// routeStore is the routes of a kind.
type routeStore interface {
	by(routeKey, slim.Key) []*route
	at(slim.Key) (r *route, exists bool)
	// ids are the ids of all.
	ids() []slim.Key
	// hides reports whether there is a route of which nothing could be decoded.
	hides() bool
}

// storeOf is a routeStore.
type storeOf[T any, P routeObject[T]] struct {
	store   *stream.Store[T]
	indexes *routeIndexes[T]
}

func (s storeOf[T, P]) by(index routeKey, key slim.Key) (found []*route) {
	for r := range stream.ByIndex(s.store, s.indexes[index], key) {
		found = append(found, P(r).route())
	}
	return found
}

func (s storeOf[T, P]) at(key slim.Key) (*route, bool) {
	r, exists := s.store.Get(key)
	if !exists {
		return nil, false
	}
	return P(r).route(), true
}

func (s storeOf[T, P]) ids() (all []slim.Key) {
	for r := range s.store.All() {
		all = append(all, P(r).route().id())
	}
	return all
}

func (s storeOf[T, P]) hides() bool { return hides(s.store) }

// routeStores are the routes of all kinds that are served, by their kind.
func (c *controller) routeStores() map[string]routeStore {
	all := map[string]routeStore{kindHTTP: storeOf[httpRoute, *httpRoute]{c.http, httpIndexes}, kindGRPC: storeOf[grpcRoute, *grpcRoute]{c.grpc, grpcIndexes}}
	c.mu.Lock()
	defer c.mu.Unlock()
	for kind, served := range c.servedRoutes {
		if served.routeStore != nil {
			all[kind] = served
		}
	}
	return all
}

var (
	httpIndexes = newRouteIndexes[httpRoute]()
	grpcIndexes = newRouteIndexes[grpcRoute]()
)

// routes are the routes of all kinds that have a key, by their kinds.
func (c *controller) routes(by routeKey, key slim.Key) (found []*route) {
	all := c.routeStores()
	for _, kind := range routeKinds {
		if store := all[kind]; store != nil {
			found = append(found, store.by(by, key)...)
		}
	}
	return found
}

// route is a route by its kind and key.
func (c *controller) route(kind string, key slim.Key) (r *route, exists bool) {
	if store := c.routeStores()[kind]; store != nil {
		return store.at(key)
	}
	return nil, false
}

// hidesRoute reports whether there is a route, or a BackendTLSPolicy, of which nothing could be decoded: it may be of any Gateway.
func (c *controller) hidesRoute() bool {
	for _, store := range c.routeStores() {
		if store.hides() {
			return true
		}
	}
	return hides(c.storeOfPolicies())
}

func hides[T any](s *stream.Store[T]) bool {
	return s != nil && slices.ContainsFunc(s.Unreadable(), func(key slim.Key) bool { _, known := s.Get(key); return !known })
}

// secretKeys are the secrets that listeners refer to, and the other namespaces of those.
func (h holder) secretKeys() (keys []slim.Key) {
	namespace := h.Namespace.String()
	for _, l := range h.listeners {
		if l.TLS == nil {
			continue
		}
		for _, ref := range l.TLS.CertificateRefs {
			key, ok := secretOf(namespace, ref)
			if !ok {
				continue
			}
			keys = append(keys, key)
			if key.Namespace != namespace {
				keys = append(keys, namespaceKey(key.Namespace))
			}
		}
	}
	return keys
}

var (
	gatewaysByClass = stream.NewIndex("class", func(g *gateway, add func(string)) { add(string(g.Spec.GatewayClassName)) })
	// gatewaysByService finds Gateways by the name of their Service.
	gatewaysByService = stream.NewIndex("service", func(g *gateway, add func(slim.Key)) { add(serviceKey(g.Key())) })
	// gatewaysBySecret finds Gateways by the secrets that they refer to, and by the other namespaces of those.
	gatewaysBySecret = stream.NewIndex("secret", func(g *gateway, add func(slim.Key)) { addOnce(g.holder().secretKeys(), add) })
	setsBySecret     = stream.NewIndex("secret", func(s *listenerSet, add func(slim.Key)) { addOnce(s.holder().secretKeys(), add) })
	setsByNamespace  = stream.NewIndex("namespace", func(s *listenerSet, add func(string)) { add(s.Namespace.String()) })
	setsByGateway    = stream.NewIndex("gateway", func(s *listenerSet, add func(slim.Key)) {
		if key, ok := s.gatewayKey(); ok {
			add(key)
		}
	})
	classesByConfig = stream.NewIndex("config", func(cl *class, add func(slim.Key)) {
		if ref := cl.Spec.ParametersRef; ref != nil && ref.Namespace != nil {
			add(slim.Key{Namespace: string(*ref.Namespace), Name: ref.Name})
		}
	})
	policiesByService = stream.NewIndex("service", func(p *tlsPolicy, add func(slim.Key)) {
		for _, key := range p.services() {
			add(key)
		}
	})
	policiesByAuthority = stream.NewIndex("authority", func(p *tlsPolicy, add func(slim.Key)) { addOnce(p.authorities(), add) })
	grantsByNamespace   = stream.NewIndex("namespace", func(g *grant, add func(string)) { add(g.Namespace.String()) })
)
