// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package gateway

import (
	"iter"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/skep-operator/skep/cells/gateway/internal/route"
	envoyres "github.com/skep-operator/skep/resources/envoy"
	"github.com/skep-operator/skep/resources/stream"
	"github.com/skep-operator/skep/resources/stream/slim"
)

// seen is what functions that map changes know of the objects before. It tells changes of a status from others.
type seen struct {
	objects    map[slim.Key]input      // of Gateways, and of routes and ListenerSets by their id
	parents    map[slim.Key][]slim.Key // of routes and ListenerSets
	targets    map[slim.Key][]slim.Key // of routes, each of Route.Targets once; of BackendTLSPolicies, Services
	ports      map[slim.Key][]slim.ServicePort
	namespaces map[string]slim.Labels
	nodes      map[string]string // the addresses of Nodes that have one
	hostPorts  envoyres.HostPortChanges
}

// input is what planning depends on of an object: all but its status.
type input struct {
	uid        slim.UID
	generation int64
	deleted    bool
	cut        slim.Cut
}

func newSeen() seen {
	return seen{map[slim.Key]input{}, map[slim.Key][]slim.Key{}, map[slim.Key][]slim.Key{}, map[slim.Key][]slim.ServicePort{}, map[string]slim.Labels{}, map[string]string{}, envoyres.HostPortChanges{}}
}

// changed reports whether more than the status of an object has changed.
func (s seen) changed(key slim.Key, kind stream.ChangeKind, m *route.ObjectMeta) bool {
	now := input{m.UID, m.Generation, !m.DeletionTimestamp.IsZero(), m.Cut}
	was, known := s.objects[key]
	if kind == stream.Delete {
		delete(s.objects, key)
		return true
	}
	s.objects[key] = now
	return !known || was != now
}

// addGateway adds a Gateway, its ListenerSets, and all routes that refer to any of them, with the policies of their backends.
func (c *controller) addGateway(to *keySet, g *gateway) {
	to.add(g.Key())
	c.addAttached(to, g.Key())
	for s := range setsBy(c, setsByGateway, g.Key()) {
		to.add(s.id())
		c.addAttached(to, s.id())
	}
}

// addAttached adds the routes of a parent, and the policies of their backends.
func (c *controller) addAttached(to *keySet, parent slim.Key) {
	routes := c.routes(routesByParent, parent)
	for _, r := range routes {
		to.add(r.ID())
	}
	c.addPoliciesTo(to, routes)
}

// addRoutes adds routes, and all that plans them: their parents, but of ListenerSets the Gateways; and the policies of their backends.
func (c *controller) addRoutes(to *keySet, all []*route.Route) {
	for _, r := range all {
		to.add(r.ID())
		to.add(c.plannersOf(r.ParentKeys())...)
	}
	c.addPoliciesTo(to, all)
}

// plannersOf is parents of routes with the Gateways of ListenerSets in place of these. A ListenerSet that is not known yet has its
// Gateway reconciled when it comes.
func (c *controller) plannersOf(parents []slim.Key) (keys []slim.Key) {
	for _, key := range parents {
		if name, is := strings.CutPrefix(key.Name, route.KindListenerSet+"/"); is {
			keys = append(keys, c.gatewayOfSet(slim.Key{Namespace: key.Namespace, Name: name})...)
		} else {
			keys = append(keys, key)
		}
	}
	return keys
}

// gatewayOfSet is the Gateway of a ListenerSet, if both are known.
func (c *controller) gatewayOfSet(key slim.Key) (keys []slim.Key) {
	if store := c.listenerSetStore(); store != nil {
		if s, exists := store.Get(key); exists {
			return s.gatewayKeys()
		}
	}
	return nil
}

func (s *listenerSet) gatewayKeys() (keys []slim.Key) {
	if key, ok := s.gatewayKey(); ok {
		keys = append(keys, key)
	}
	return keys
}

// setsBy are the ListenerSets that have a key, none while they are not known.
func setsBy[K comparable](c *controller, by *stream.Index[listenerSet, K], key K) iter.Seq[*listenerSet] {
	store := c.listenerSetStore()
	if store == nil {
		return func(func(*listenerSet) bool) {}
	}
	return stream.ByIndex(store, by, key)
}

// definitionChanged is all GatewayClasses and Gateways, and the routes of ListenerSets; of that of BackendTLSPolicies all that they
// concern.
func (c *controller) definitionChanged(ch stream.Change[definition]) []slim.Key {
	of, keys := schema.ParseGroupResource(ch.Key.Name), &keySet{}
	switch {
	case of == imports.Resource().GroupResource():
		c.addRoutes(keys, c.routes(routesByTarget, route.AnyImport))
		return keys.all
	case of.Group != gatewayv1.GroupName && of != classConfigs.Resource().GroupResource():
		return nil
	}
	for cl := range c.classes.All() {
		keys.add(cl.Key())
	}
	for g := range c.gateways.All() {
		keys.add(g.Key())
	}
	if of == tlsPolicyKind.Resource().GroupResource() {
		keys.add(c.meshKeys()...)
		c.addAllPolicies(keys)
	}
	c.addAttached(keys, anyListenerSet)
	return keys.all
}

func (c *controller) classChanged(ch stream.Change[class]) []slim.Key {
	keys := &keySet{}
	keys.add(ch.Key)
	if !c.seen.changed(ch.Key, ch.Kind, &ch.Object.ObjectMeta) {
		return keys.all
	}
	if ref := ch.Object.Spec.ParametersRef; ref != nil && ref.Namespace != nil {
		keys.add(route.KeyOf(kindClassConfig, slim.Key{Namespace: string(*ref.Namespace), Name: ref.Name}))
	}
	for g := range stream.ByIndex(c.gateways, gatewaysByClass, ch.Key.Name) {
		c.addGateway(keys, g)
	}
	keys.add(c.hostPortsChanged()...)
	return keys.all
}

func (c *controller) gatewayChanged(ch stream.Change[gateway]) []slim.Key {
	if !c.seen.changed(ch.Key, ch.Kind, &ch.Object.ObjectMeta) {
		return []slim.Key{ch.Key}
	}
	keys := &keySet{}
	c.addGateway(keys, ch.Object)
	keys.add(c.hostPortsChanged()...)
	return keys.all
}

// routeChanged is the route; and if more than its status has changed, its parents and the policies of its backends, before and after.
func (c *controller) routeChanged(kind stream.ChangeKind, r *route.Route) []slim.Key {
	id, keys := r.ID(), &keySet{}
	keys.add(id)
	if !c.seen.changed(id, kind, r.ObjectMeta) {
		return keys.all
	}
	addSeen := func() {
		keys.add(c.plannersOf(c.seen.parents[id])...)
		c.addPoliciesOf(keys, c.seen.targets[id])
	}
	addSeen()
	delete(c.seen.parents, id)
	delete(c.seen.targets, id)
	if kind != stream.Delete {
		targets := &keySet{}
		targets.add(r.Targets()...)
		c.seen.parents[id], c.seen.targets[id] = r.ParentKeys(), targets.all
	}
	addSeen()
	return keys.all
}

// listenerSetChanged is the ListenerSet, its Gateway before and after, which writes its status, and if more than its status has
// changed, its routes with the policies of their backends.
func (c *controller) listenerSetChanged(ch stream.Change[listenerSet]) []slim.Key {
	id, keys := ch.Object.id(), &keySet{}
	keys.add(id)
	keys.add(c.seen.parents[id]...)
	if delete(c.seen.parents, id); ch.Kind != stream.Delete {
		c.seen.parents[id] = ch.Object.gatewayKeys()
		keys.add(c.seen.parents[id]...)
	}
	if c.seen.changed(id, ch.Kind, &ch.Object.ObjectMeta) {
		c.addAttached(keys, id)
		keys.add(c.hostPortsChanged()...)
	}
	return keys.all
}

// grantChanged is all that refers to objects of the namespace from another one.
func (c *controller) grantChanged(ch stream.Change[grant]) []slim.Key {
	into, keys := namespaceKey(ch.Key.Namespace), &keySet{}
	c.addRoutes(keys, c.routes(routesByTarget, into))
	c.addBySecret(keys, into)
	c.addLeft(keys, ch.Key.Namespace)
	return keys.all
}

// addBySecret adds the Gateways that have a key of gatewaysBySecret, by themselves or by their ListenerSets.
func (c *controller) addBySecret(to *keySet, key slim.Key) {
	for g := range stream.ByIndex(c.gateways, gatewaysBySecret, key) {
		to.add(g.Key())
	}
	for s := range setsBy(c, setsBySecret, key) {
		to.add(s.gatewayKeys()...)
	}
}

// serviceChanged is the Gateway of a Service; and where ports have changed, the routes that refer to it, by themselves or by a ServiceImport.
func (c *controller) serviceChanged(ch stream.Change[service]) []slim.Key {
	keys := &keySet{}
	keys.add(c.gatewaysOfService(ch.Key)...)
	was, known := c.seen.ports[ch.Key]
	if ch.Kind == stream.Delete {
		delete(c.seen.ports, ch.Key)
	} else {
		c.seen.ports[ch.Key] = ch.Object.Spec.Ports
		if known && slices.Equal(was, ch.Object.Spec.Ports) {
			return keys.all
		}
	}
	mesh := route.KeyOf(route.KindService, ch.Key)
	if parents := c.routes(routesByParent, mesh); len(parents) > 0 {
		keys.add(mesh)
		c.addAttached(keys, mesh)
	}
	c.addRoutes(keys, c.routesTo([]slim.Key{ch.Key}))
	return keys.all
}

// importsOf are the ServiceImports that have a Service as theirs. While ServiceImports are not known nothing refers to one: what does is reconciled when
// they are.
func (c *controller) importsOf(service slim.Key) iter.Seq[*serviceImport] {
	c.mu.Lock()
	store := c.importStore
	c.mu.Unlock()
	if store == nil {
		return func(func(*serviceImport) bool) {}
	}
	return stream.ByIndex(store, importsByService, service)
}

func (c *controller) setImports(store *stream.Store[serviceImport]) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.importStore = store
}

// namespaceChanged is the Gateways that select namespaces, and the routes and ListenerSets of this one, if its labels have changed.
func (c *controller) namespaceChanged(ch stream.Change[namespace]) []slim.Key {
	was, known := c.seen.namespaces[ch.Key.Name]
	if ch.Kind == stream.Delete {
		delete(c.seen.namespaces, ch.Key.Name)
	} else {
		c.seen.namespaces[ch.Key.Name] = ch.Object.Labels
		if known && was == ch.Object.Labels {
			return nil
		}
	}
	keys := &keySet{}
	c.addRoutes(keys, c.routes(routesByNamespace, namespaceKey(ch.Key.Name)))
	for s := range setsBy(c, setsByNamespace, ch.Key.Name) {
		keys.add(s.gatewayKeys()...)
		c.addAttached(keys, s.id())
	}
	keys.add(c.hostPortsChanged()...)
	return keys.all
}

func (c *controller) secretChanged(ch stream.Change[secret]) []slim.Key {
	keys := &keySet{}
	c.addBySecret(keys, ch.Key)
	return keys.all
}

// sliceChanged is the Gateway of a placeholder, and that which controls an EndpointSlice.
func (c *controller) sliceChanged(ch stream.Change[envoyres.Slice[duty]]) []slim.Key {
	keys := c.gatewaysOfService(ch.Key)
	if owner := ch.Object.Controller; owner.Kind() == route.KindGateway {
		keys = append(keys, slim.Key{Namespace: ch.Key.Namespace, Name: owner.Name()})
	}
	return keys
}

func (c *controller) endpointsChanged(ch stream.Change[envoyres.Endpoints[duty]]) []slim.Key {
	return c.gatewaysOfService(ch.Key)
}

// gatewaysOfService is the Gateway of a Service, or of its placeholder, which has the same name.
func (c *controller) gatewaysOfService(key slim.Key) (keys []slim.Key) {
	for g := range stream.ByIndex(c.gateways, gatewaysByService, key) {
		keys = append(keys, g.Key())
	}
	return keys
}

// configChanged is the Gateway of a CiliumEnvoyConfig, or the Service with routes, and all Gateways if it has other ports of the nodes than before.
func (c *controller) configChanged(ch stream.Change[envoyres.Object]) (keys []slim.Key) {
	owner := ch.Object.Controller
	if owner.Kind() == route.KindGateway {
		keys = append(keys, slim.Key{Namespace: ch.Key.Namespace, Name: owner.Name()})
	}
	if c.seen.hostPorts.Apply(ch) {
		keys = append(keys, c.hostPortsChanged()...)
	}
	if key, ok := meshOf(ch.Object); ok {
		keys = append(keys, key)
	}
	if mesh := route.KeyOf(route.KindService, ch.Key); len(c.routes(routesByParent, mesh)) > 0 { // it may be in the place of one
		keys = append(keys, mesh)
	}
	return keys
}

// meshOf is the key of the Service with routes that a CiliumEnvoyConfig is of.
func meshOf(o *envoyres.Object) (key slim.Key, ok bool) {
	if owner := o.Controller; owner.Kind() != route.KindService || owner.Name() != o.Name {
		return key, false
	}
	return route.KeyOf(route.KindService, o.Key()), true
}

// importChanged is the routes that refer to a ServiceImport, and their parents.
func (c *controller) importChanged(ch stream.Change[serviceImport]) []slim.Key {
	keys := &keySet{}
	c.addRoutes(keys, c.routes(routesByTarget, route.KeyOf(route.KindImport, ch.Key)))
	return keys.all
}

// classConfigChanged is the CiliumGatewayClassConfig, its classes and their Gateways.
func (c *controller) classConfigChanged(ch stream.Change[classConfig]) []slim.Key {
	keys := []slim.Key{route.KeyOf(kindClassConfig, ch.Key)}
	if !c.seen.changed(keys[0], ch.Kind, &ch.Object.ObjectMeta) {
		return keys
	}
	for cl := range stream.ByIndex(c.classes, classesByConfig, ch.Key) {
		keys = append(keys, cl.Key())
		for g := range stream.ByIndex(c.gateways, gatewaysByClass, cl.Name) {
			keys = append(keys, g.Key())
		}
	}
	return keys
}
