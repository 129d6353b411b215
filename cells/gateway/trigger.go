// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package gateway

import (
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	envoyres "github.com/skep-operator/skep/resources/envoy"
	"github.com/skep-operator/skep/resources/stream"
	"github.com/skep-operator/skep/resources/stream/slim"
)

// seen is what functions that map changes know of the objects before. It tells changes of a status from others.
type seen struct {
	objects    map[slim.Key]input      // of Gateways, and of routes by their id
	parents    map[slim.Key][]slim.Key // of routes
	ports      map[slim.Key][]slim.ServicePort
	namespaces map[string]slim.Labels
}

// input is what planning depends on of an object: all but its status.
type input struct {
	uid        slim.UID
	generation int64
	deleted    bool
}

func newSeen() seen {
	return seen{map[slim.Key]input{}, map[slim.Key][]slim.Key{}, map[slim.Key][]slim.ServicePort{}, map[string]slim.Labels{}}
}

// changed reports whether more than the status of an object has changed.
func (s seen) changed(key slim.Key, kind stream.ChangeKind, m *objectMeta) bool {
	now := input{m.UID, m.Generation, !m.DeletionTimestamp.IsZero()}
	was, known := s.objects[key]
	if kind == stream.Delete {
		delete(s.objects, key)
		return true
	}
	s.objects[key] = now
	return !known || was != now
}

func idsOf(all []*route) (keys []slim.Key) {
	for _, r := range all {
		keys = append(keys, r.id())
	}
	return keys
}

// withRoutes is Gateways, and all routes that refer to them.
func (c *controller) withRoutes(all ...*gateway) (keys []slim.Key) {
	for _, g := range all {
		keys = append(append(keys, g.Key()), idsOf(c.routes(routesByParent, g.Key()))...)
	}
	return keys
}

// withParents is routes, and all that they refer to as their parents.
func withParents(all []*route) (keys []slim.Key) {
	for _, r := range all {
		keys = append(append(keys, r.id()), r.parentKeys()...)
	}
	return keys
}

// definitionChanged is all GatewayClasses and Gateways.
func (c *controller) definitionChanged(ch stream.Change[definition]) (keys []slim.Key) {
	of := schema.ParseGroupResource(ch.Key.Name)
	switch {
	case of == imports.Resource().GroupResource():
		return c.withImports()
	case of.Group != gatewayv1.GroupName && of != classConfigs.Resource().GroupResource():
		return nil
	}
	for cl := range c.classes.All() {
		keys = append(keys, cl.Key())
	}
	for g := range c.gateways.All() {
		keys = append(keys, g.Key())
	}
	return keys
}

// withImports is the routes that refer to ServiceImports, of which there are few, and their parents.
func (c *controller) withImports() []slim.Key {
	return withParents(c.routes(routesByTarget, anyImport))
}

func (c *controller) classChanged(ch stream.Change[class]) []slim.Key {
	keys := []slim.Key{ch.Key}
	if !c.seen.changed(ch.Key, ch.Kind, &ch.Object.objectMeta) {
		return keys
	}
	if ref := ch.Object.Spec.ParametersRef; ref != nil && ref.Namespace != nil {
		keys = append(keys, keyOf(kindClassConfig, slim.Key{Namespace: string(*ref.Namespace), Name: ref.Name}))
	}
	return append(keys, c.withRoutes(slices.Collect(stream.ByIndex(c.gateways, gatewaysByClass, ch.Key.Name))...)...)
}

func (c *controller) gatewayChanged(ch stream.Change[gateway]) []slim.Key {
	if !c.seen.changed(ch.Key, ch.Kind, &ch.Object.objectMeta) {
		return []slim.Key{ch.Key}
	}
	return c.withRoutes(ch.Object)
}

// routeChanged is the route, and its parents before and after if more than its status has changed.
func (c *controller) routeChanged(kind stream.ChangeKind, r *route) []slim.Key {
	id := r.id()
	keys := []slim.Key{id}
	if !c.seen.changed(id, kind, r.objectMeta) {
		return keys
	}
	keys = append(keys, c.seen.parents[id]...)
	if delete(c.seen.parents, id); kind != stream.Delete {
		c.seen.parents[id] = r.parentKeys()
		keys = append(keys, c.seen.parents[id]...)
	}
	return keys
}

// grantChanged is all that refers to objects of the namespace from another one.
func (c *controller) grantChanged(ch stream.Change[grant]) []slim.Key {
	into := namespaceKey(ch.Key.Namespace)
	keys := withParents(c.routes(routesByTarget, into))
	for g := range stream.ByIndex(c.gateways, gatewaysBySecret, into) {
		keys = append(keys, g.Key())
	}
	return keys
}

// serviceChanged is the Gateway of a Service; and where ports have changed, the routes that refer to it.
func (c *controller) serviceChanged(ch stream.Change[service]) (keys []slim.Key) {
	for g := range stream.ByIndex(c.gateways, gatewaysByService, ch.Key) {
		keys = append(keys, g.Key())
	}
	was, known := c.seen.ports[ch.Key]
	if ch.Kind == stream.Delete {
		delete(c.seen.ports, ch.Key)
	} else {
		c.seen.ports[ch.Key] = ch.Object.Spec.Ports
		if known && slices.Equal(was, ch.Object.Spec.Ports) {
			return keys
		}
	}
	mesh := keyOf(kindService, ch.Key)
	if parents := c.routes(routesByParent, mesh); len(parents) > 0 {
		keys = append(append(keys, mesh), idsOf(parents)...)
	}
	keys = append(keys, withParents(c.routes(routesByTarget, mesh))...)
	return append(keys, c.withImports()...) // it may be that of one
}

// namespaceChanged is the Gateways that select namespaces, and the routes of this one, if its labels have changed.
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
	return withParents(c.routes(routesByNamespace, namespaceKey(ch.Key.Name)))
}

func (c *controller) secretChanged(ch stream.Change[secret]) (keys []slim.Key) {
	for g := range stream.ByIndex(c.gateways, gatewaysBySecret, ch.Key) {
		keys = append(keys, g.Key())
	}
	return keys
}

func (c *controller) endpointsChanged(ch stream.Change[endpoints]) (keys []slim.Key) {
	for g := range stream.ByIndex(c.gateways, gatewaysByService, ch.Key) {
		keys = append(keys, g.Key())
	}
	return keys
}

// configChanged is the Gateway of a CiliumEnvoyConfig, or the Service with routes.
func (c *controller) configChanged(ch stream.Change[envoyres.Object]) (keys []slim.Key) {
	if owner := ch.Object.Controller; owner.Kind() == kindGateway {
		keys = append(keys, slim.Key{Namespace: ch.Key.Namespace, Name: owner.Name()})
	}
	if key, ok := meshOf(ch.Object); ok {
		keys = append(keys, key)
	}
	if mesh := keyOf(kindService, ch.Key); len(c.routes(routesByParent, mesh)) > 0 { // it may be in the place of one
		keys = append(keys, mesh)
	}
	return keys
}

// meshOf is the key of the Service with routes that a CiliumEnvoyConfig is of.
func meshOf(o *envoyres.Object) (key slim.Key, ok bool) {
	if owner := o.Controller; owner.Kind() != kindService || owner.Name() != o.Name {
		return key, false
	}
	return keyOf(kindService, o.Key()), true
}

// importChanged is the routes that refer to a ServiceImport, and their parents.
func (c *controller) importChanged(ch stream.Change[serviceImport]) []slim.Key {
	return withParents(c.routes(routesByTarget, keyOf(kindImport, ch.Key)))
}

// classConfigChanged is the CiliumGatewayClassConfig, its classes and their Gateways.
func (c *controller) classConfigChanged(ch stream.Change[classConfig]) []slim.Key {
	keys := []slim.Key{keyOf(kindClassConfig, ch.Key)}
	if !c.seen.changed(keys[0], ch.Kind, &ch.Object.objectMeta) {
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
