// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package gateway

import (
	"context"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/skep-operator/skep/cells/gateway/internal/condition"
	"github.com/skep-operator/skep/cells/gateway/internal/route"
	"github.com/skep-operator/skep/resources/k8s"
	"github.com/skep-operator/skep/resources/reconcile"
	"github.com/skep-operator/skep/resources/stream"
	"github.com/skep-operator/skep/resources/stream/slim"
)

// servesPolicies reports whether BackendTLSPolicies can be served: their definition has v1, and the role allows to read them and
// what they refer to. That of older releases does not.
func (c *controller) servesPolicies(ctx context.Context) (bool, error) {
	for _, resource := range []k8s.Ref{{Resource: tlsPolicyKind.Resource()}, {Resource: configMaps.Resource()}} {
		if c.Permissions.Denies("list", resource) || c.Permissions.Denies("watch", resource) {
			return false, nil
		}
	}
	d, err := c.definition(ctx, tlsPolicyKind.Resource().GroupResource())
	return slices.Contains(d.versions, tlsPolicyKind.Resource().Version), err
}

// needPolicies has BackendTLSPolicies watched for a key. They are not known before the initial state is complete.
func (c *controller) needPolicies(ctx context.Context, key slim.Key) (known bool, err error) {
	served, err := c.servesPolicies(ctx)
	if err != nil {
		return false, err
	}
	var store *stream.Store[tlsPolicy]
	if served {
		if store = c.policies.Need(key); store == nil {
			return false, nil
		}
	} else {
		c.policies.Drop(key)
	}
	if store == nil || store.Len() == 0 { // ConfigMaps are many
		c.configMaps.Drop(key)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.policyStore = store
	return true, nil
}

func (c *controller) dropPolicies(key slim.Key) {
	c.policies.Drop(key)
	c.configMaps.Drop(key)
}

// storeOfPolicies is nil if they are not served, or nothing needs them.
func (c *controller) storeOfPolicies() *stream.Store[tlsPolicy] {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.policyStore
}

// policiesIn are the BackendTLSPolicies that have a key in an index.
func (c *controller) policiesIn(index *stream.Index[tlsPolicy, slim.Key], key slim.Key) (found []*tlsPolicy) {
	store := c.storeOfPolicies()
	if store == nil {
		return nil
	}
	return slices.Collect(stream.ByIndex(store, index, key))
}

// tlsPolicies are those of the cluster, for a lookup.
func (c *controller) tlsPolicies(lookup route.Lookup) tlsPolicies {
	return tlsPolicies{
		of: func(service slim.Key) []*tlsPolicy { return c.policiesIn(policiesByService, service) },
		hasPort: func(service slim.Key, port string) bool {
			s, exists := c.services.Get(service)
			return !exists && c.services.Hides(service) || exists && s.hidesPorts() || exists && slices.ContainsFunc(s.Spec.Ports, func(p slim.ServicePort) bool { return p.Name.String() == port })
		},
		authority: func(of slim.Key) route.Answer { return lookup(route.Query{About: route.AboutAuthority, Key: of}) },
	}
}

// askTLS answers how a port of a Service is spoken to. One of which the name is not known, since the Service cannot be decoded or is too large, is not, if
// there is a policy for a port: it may be this one.
func (c *controller) askTLS(q route.Query, lookup route.Lookup) route.Answer {
	all := c.policiesIn(policiesByService, q.Key)
	if len(all) == 0 {
		return route.Answer{}
	}
	s, exists := c.services.Get(q.Key)
	name, isKnown := "", false
	if exists {
		i := portAsked(s, q)
		if isKnown = i >= 0 || !s.hidesPorts(); i >= 0 {
			name = s.Spec.Ports[i].Name.String()
		}
	}
	if !isKnown && slices.ContainsFunc(all, func(p *tlsPolicy) bool { return p.namesPortOf(q.Key) }) {
		return route.Answer{Exists: true}
	}
	return c.tlsPolicies(lookup).at(q.Key, name)
}

func (c *controller) askAuthority(q route.Query, key slim.Key, waiting *bool) route.Answer {
	known := c.configMaps.Need(key)
	if known == nil {
		*waiting = true
		return route.Answer{}
	}
	m, exists := known.Get(q.Key)
	return route.Answer{Exists: exists, OK: exists && m.isAuthority()}
}

// reconcilePolicy writes the status of a BackendTLSPolicy.
func (c *controller) reconcilePolicy(ctx context.Context, key, of slim.Key) (reconcile.Result, error) {
	known, err := c.needPolicies(ctx, key)
	if err != nil || !known {
		return reconcile.Result{RequeueAfter: unreadableRetry, Reason: isWaiting}, err
	}
	var p *tlsPolicy
	if store := c.storeOfPolicies(); store != nil {
		p, _ = store.Get(of)
	}
	if p == nil {
		c.dropPolicies(key)
		c.dropOptionalRoutes(key)
		c.imports.Drop(key)
		c.sets.Drop(key)
		c.agents.Drop(key)
		return reconcile.Result{Reason: isGone}, nil
	}
	routesKnown, err := c.needOptionalRoutes(ctx, key)
	if err != nil {
		return reconcile.Result{}, err
	}
	sets, err := c.needListenerSets(ctx, key)
	switch {
	case err != nil:
		return reconcile.Result{}, err
	case !routesKnown || !sets.known():
		return c.awaiting(sets), nil
	case sets.hides():
		return reconcile.Result{RequeueAfter: unreadableRetry, Reason: unreadableSet}, nil
	case c.hidesRoute(func(string) bool { return true }):
		return reconcile.Result{RequeueAfter: unreadableRetry, Reason: unreadable}, nil
	}
	waiting := false
	lookup := c.lookup(key, &waiting)
	routes := onceByID(append(c.routesTo(p.services()), c.routes(routesByTarget, route.AnyImport)...)) // what these refer to may not be known yet
	found := c.parents(sets).ancestors(p.services(), routes, lookup)
	if len(found.found) == 0 && !waiting && !p.hasEntry() {
		return reconcile.Result{Reason: noAncestor}, nil
	}
	v := c.tlsPolicies(lookup).evaluate(p)
	if waiting {
		return reconcile.Result{Reason: isWaiting}, nil
	}
	return c.writePolicyStatus(ctx, p, found, v)
}

// writePolicyStatus writes the status of a BackendTLSPolicy if it differs.
func (c *controller) writePolicyStatus(ctx context.Context, p *tlsPolicy, found ancestors, v policyResult) (reconcile.Result, error) {
	now := metav1.NewTime(c.Deps.Plan.Now())
	var result reconcile.Result
	for _, said := range []condition.Condition{v.resolved, v.accepted} {
		if !said.OK {
			result.Reason = fmt.Sprintf("not served as it asks for: %s: %s", said.Reason, said.Message)
		}
	}
	if _, changed := mergeAncestors(p.Status.Ancestors, found, v, p.Generation, now); !changed {
		return result, nil
	}
	ref := k8s.Ref{Resource: tlsPolicyKind.Resource(), Namespace: p.Namespace.String(), Name: p.Name, Subresource: "status", UID: p.UID.API()}
	return result, modifyStatus(k8s.WithOneSource(ctx), c.Client, ref, func(s *gatewayv1.PolicyStatus) {
		s.Ancestors, _ = mergeAncestors(s.Ancestors, found, v, p.Generation, now)
	})
}

// routesTo are the routes that refer to Services, by themselves or by a ServiceImport that is known, each once.
func (c *controller) routesTo(services []slim.Key) (all []*route.Route) {
	for _, s := range services {
		all = append(all, c.routes(routesByTarget, route.KeyOf(route.KindService, s))...)
		for i := range c.importsOf(s) {
			all = append(all, c.routes(routesByTarget, route.KeyOf(route.KindImport, i.Key()))...)
		}
	}
	return onceByID(all)
}

// policyChanged is the BackendTLSPolicy, and if more than its status has changed, the others of its Services before and after, and
// what plans the routes that refer to them.
func (c *controller) policyChanged(ch stream.Change[tlsPolicy]) []slim.Key {
	id, keys, services := route.KeyOf(kindTLSPolicy, ch.Key), &keySet{}, &keySet{}
	keys.add(id)
	if !c.seen.changed(id, ch.Kind, &ch.Object.ObjectMeta) {
		return keys.all
	}
	services.add(c.seen.targets[id]...)
	services.add(ch.Object.services()...)
	if delete(c.seen.targets, id); ch.Kind != stream.Delete {
		c.seen.targets[id] = ch.Object.services()
	}
	for _, s := range services.all {
		addPolicies(keys, c.policiesIn(policiesByService, s))
	}
	for _, r := range c.routesTo(services.all) {
		keys.add(c.plannersOf(r.ParentKeys())...)
	}
	return keys.all
}

// configMapChanged is the BackendTLSPolicies that refer to a ConfigMap, and what plans the routes that refer to their Services.
func (c *controller) configMapChanged(ch stream.Change[configMap]) []slim.Key {
	keys, services := &keySet{}, &keySet{}
	all := c.policiesIn(policiesByAuthority, ch.Key)
	if len(all) == 0 {
		return nil
	}
	addPolicies(keys, all)
	for _, p := range all {
		services.add(p.services()...)
	}
	for _, r := range c.routesTo(services.all) {
		keys.add(c.plannersOf(r.ParentKeys())...)
	}
	return keys.all
}

func addPolicies(to *keySet, all []*tlsPolicy) {
	for _, p := range all {
		to.add(route.KeyOf(kindTLSPolicy, p.Key()))
	}
}

// addAllPolicies adds all BackendTLSPolicies.
func (c *controller) addAllPolicies(to *keySet) {
	if store := c.storeOfPolicies(); store != nil && !to.hasPolicies {
		to.hasPolicies = true
		addPolicies(to, slices.Collect(store.All()))
	}
}

// addPoliciesOf adds the BackendTLSPolicies of the Services among the targets of routes; all where there are ServiceImports.
func (c *controller) addPoliciesOf(to *keySet, targets []slim.Key) {
	if c.storeOfPolicies() == nil {
		return
	}
	if slices.Contains(targets, route.AnyImport) {
		c.addAllPolicies(to)
		return
	}
	for _, target := range targets {
		if name, ok := strings.CutPrefix(target.Name, route.KindService+"/"); ok {
			addPolicies(to, c.policiesIn(policiesByService, slim.Key{Namespace: target.Namespace, Name: name}))
		}
	}
}

// addPoliciesTo adds the BackendTLSPolicies of the backends of routes.
func (c *controller) addPoliciesTo(to *keySet, routes []*route.Route) {
	if c.storeOfPolicies() == nil {
		return
	}
	targets := &keySet{}
	for _, r := range routes {
		targets.add(r.Targets()...)
	}
	c.addPoliciesOf(to, targets.all)
}

// hasEntry reports whether the status of a policy has an entry of ours.
func (p *tlsPolicy) hasEntry() bool {
	return slices.ContainsFunc(p.Status.Ancestors, func(s gatewayv1.PolicyAncestorStatus) bool { return s.ControllerName == controllerName })
}
