// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package gateway

import (
	"slices"
	"strings"

	"github.com/skep-operator/skep/cells/gateway/internal/listener"
	"github.com/skep-operator/skep/cells/gateway/internal/route"
	"github.com/skep-operator/skep/resources/stream"
	"github.com/skep-operator/skep/resources/stream/slim"
)

// routeObject is a pointer to a route of one kind.
type routeObject[T any] interface {
	*T
	Route() *route.Route
}

// byParent finds routes by their parents.
func byParent[T any, P routeObject[T]]() *stream.Index[T, slim.Key] {
	return stream.NewIndex("parent", func(obj *T, add func(slim.Key)) {
		r := P(obj).Route()
		for _, key := range r.ParentKeys() {
			add(key)
		}
		if r.HasListenerSet() {
			add(anyListenerSet)
		}
	})
}

// byTarget finds routes by what they refer to, and by the other namespaces that they refer to.
func byTarget[T any, P routeObject[T]]() *stream.Index[T, slim.Key] {
	return stream.NewIndex("target", func(obj *T, add func(slim.Key)) {
		r := P(obj).Route()
		keys := r.Targets()
		for _, key := range keys {
			if key != route.AnyImport && key.Namespace != r.Namespace.String() {
				keys = append(keys, namespaceKey(key.Namespace))
			}
		}
		addOnce(keys, add)
	})
}

// byNamespace finds routes by their namespace.
func byNamespace[T any, P routeObject[T]]() *stream.Index[T, slim.Key] {
	return stream.NewIndex("namespace", func(obj *T, add func(slim.Key)) { add(namespaceKey(P(obj).Route().Namespace.String())) })
}

// anyListenerSet is the key of all ListenerSets.
var anyListenerSet = slim.Key{Name: route.KindListenerSet + "/"}

// namespaceKey is the key of a namespace: it cannot be that of an object in one.
func namespaceKey(name string) slim.Key { return slim.Key{Name: name} }

func addOnce(keys []slim.Key, add func(slim.Key)) {
	for i, key := range keys {
		if !slices.Contains(keys[:i], key) {
			add(key)
		}
	}
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
	by(routeKey, slim.Key) []*route.Route
	at(slim.Key) (r *route.Route, exists bool)
	// ids are the ids of all.
	ids() []slim.Key
	// hidden are the keys of routes whose parents or hosts could not be decoded.
	hidden() []slim.Key
}

// storeOf is a routeStore.
type storeOf[T any, P routeObject[T]] struct {
	store   *stream.Store[T]
	indexes *routeIndexes[T]
}

func (s storeOf[T, P]) by(index routeKey, key slim.Key) (found []*route.Route) {
	for r := range stream.ByIndex(s.store, s.indexes[index], key) {
		found = append(found, P(r).Route())
	}
	return found
}

func (s storeOf[T, P]) at(key slim.Key) (*route.Route, bool) {
	r, exists := s.store.Get(key)
	if !exists {
		return nil, false
	}
	return P(r).Route(), true
}

func (s storeOf[T, P]) ids() (all []slim.Key) {
	for r := range s.store.All() {
		all = append(all, P(r).Route().ID())
	}
	return all
}

func (s storeOf[T, P]) hidden() []slim.Key { return hidden(s.store) }

// routeStores are the routes of all kinds that are served, by their kind.
func (c *controller) routeStores() map[string]routeStore {
	all := map[string]routeStore{route.KindHTTP: storeOf[route.HTTP, *route.HTTP]{c.http, httpIndexes}, route.KindGRPC: storeOf[route.GRPC, *route.GRPC]{c.grpc, grpcIndexes}}
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
	httpIndexes = newRouteIndexes[route.HTTP]()
	grpcIndexes = newRouteIndexes[route.GRPC]()
)

// routes are the routes of all kinds that have a key, by their kinds.
func (c *controller) routes(by routeKey, key slim.Key) (found []*route.Route) {
	all := c.routeStores()
	for _, kind := range route.Kinds {
		if store := all[kind]; store != nil {
			found = append(found, store.by(by, key)...)
		}
	}
	return found
}

// route is a route by its kind and key.
func (c *controller) route(kind string, key slim.Key) (r *route.Route, exists bool) {
	if store := c.routeStores()[kind]; store != nil {
		return store.at(key)
	}
	return nil, false
}

// hasRoute reports whether there is a route of an id.
func (c *controller) hasRoute(id slim.Key) bool {
	kind, name, _ := strings.Cut(id.Name, "/")
	_, exists := c.route(kind, slim.Key{Namespace: id.Namespace, Name: name})
	return exists
}

// hidesRoute reports whether there is a route whose parents or hosts could not be decoded, in a namespace whose routes may be meant; or a
// BackendTLSPolicy, which may be for a backend of any route. The key of an object without a name that can be decoded is zero.
func (c *controller) hidesRoute(mayBe func(namespace string) bool) bool {
	for _, store := range c.routeStores() {
		if slices.ContainsFunc(store.hidden(), func(key slim.Key) bool { return key == slim.Key{} || mayBe(key.Namespace) }) {
			return true
		}
	}
	return len(hidden(c.storeOfPolicies())) > 0
}

// hidden are the keys of objects that are not known, since they could not be decoded.
func hidden[T any](s *stream.Store[T]) []slim.Key {
	if s == nil {
		return nil
	}
	return slices.DeleteFunc(s.Unreadable(), func(key slim.Key) bool { _, known := s.Get(key); return known })
}

// secretKeys are the secrets that listeners refer to, and the other namespaces of those.
func secretKeys(of listener.Parent) (keys []slim.Key) {
	for _, key := range of.Secrets() {
		keys = append(keys, key)
		if key.Namespace != of.Namespace.String() {
			keys = append(keys, namespaceKey(key.Namespace))
		}
	}
	return keys
}

var (
	gatewaysByClass = stream.NewIndex("class", func(g *gateway, add func(string)) { add(string(g.Spec.GatewayClassName)) })
	// gatewaysByService finds Gateways by the name of their Service.
	gatewaysByService = stream.NewIndex("service", func(g *gateway, add func(slim.Key)) { add(serviceKey(g.Key())) })
	// gatewaysBySecret finds Gateways by the secrets that they refer to, and by the other namespaces of those.
	gatewaysBySecret = stream.NewIndex("secret", func(g *gateway, add func(slim.Key)) { addOnce(secretKeys(g.asParent()), add) })
	setsBySecret     = stream.NewIndex("secret", func(s *listenerSet, add func(slim.Key)) { addOnce(secretKeys(s.asParent()), add) })
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
	importsByService    = stream.NewIndex("service", func(i *serviceImport, add func(slim.Key)) {
		if name := i.Annotations.Get(route.DerivedAnnotation); name != "" {
			add(slim.Key{Namespace: i.Namespace.String(), Name: name})
		}
	})
	grantsByNamespace = stream.NewIndex("namespace", func(g *grant, add func(string)) { add(g.Namespace.String()) })
)
