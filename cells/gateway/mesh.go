// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package gateway

import (
	"context"
	"errors"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/skep-operator/skep/cells/gateway/internal/condition"
	"github.com/skep-operator/skep/cells/gateway/internal/route"
	"github.com/skep-operator/skep/resources/domain/envoy"
	envoyres "github.com/skep-operator/skep/resources/envoy"
	"github.com/skep-operator/skep/resources/k8s"
	"github.com/skep-operator/skep/resources/reconcile"
	"github.com/skep-operator/skep/resources/stream/slim"
)

// meshAttachment is what becomes of a route at a Service.
type meshAttachment struct {
	accepted condition.Condition
	ports    []int32
}

// attachMesh decides which ports of a Service a route is for. s is nil if there is no such Service.
func attachMesh(r *route.Route, ref gatewayv1.ParentReference, s *service) meshAttachment {
	refuse := func(reason, message string) meshAttachment {
		return meshAttachment{accepted: condition.False(reason, message)}
	}
	noParent := string(gatewayv1.RouteReasonNoMatchingParent)
	switch {
	case route.ParentKey(r.Namespace.String(), ref).Namespace != r.Namespace.String():
		return refuse(noParent, r.Kind+" is not allowed to attach to this Service - it and the Service must be in the same namespace")
	case s == nil:
		return refuse("Invalid"+r.Kind, "service \""+string(ref.Name)+"\" does not exist")
	case s.hidesPorts():
		return refuse(noParent, "The Service is not served: "+s.CutError().Error())
	}
	protocol := "http"
	if r.Kind == route.KindGRPC {
		protocol = "grpc"
	}
	var ports []int32
	for _, p := range s.Spec.Ports {
		switch {
		case p.Protocol.String() != string(corev1.ProtocolTCP), ref.SectionName != nil && string(*ref.SectionName) != p.Name.String():
		case ref.Port != nil && *ref.Port == p.Port, ref.Port == nil && p.AppProtocol.String() == protocol:
			ports = append(ports, p.Port)
		}
	}
	switch {
	case len(ports) > 0:
		return meshAttachment{condition.True(gatewayv1.RouteReasonAccepted, "Accepted "+r.Kind), ports}
	case ref.Port != nil || ref.SectionName != nil:
		return refuse(noParent, "The Service has no such port")
	}
	return refuse(noParent, "The Service has no port with appProtocol "+protocol)
}

// isOfMesh reports whether a route is accepted at a Service.
func isOfMesh(r *route.Route, s *service) bool {
	return r.IsHTTP() && slices.ContainsFunc(r.Parents, func(ref gatewayv1.ParentReference) bool {
		return r.IsParent(ref, route.KindService, s.Key()) && attachMesh(r, ref, s).accepted.OK
	})
}

// planMesh is the model of the routes of a Service. Host names of routes do not count.
func planMesh(s *service, routes []*route.Route, cache *route.Cache, lookup route.Lookup) (m envoy.Model) {
	ports := map[int32]bool{}
	var all []*envoy.Route
	for _, r := range slices.SortedFunc(slices.Values(routes), route.CompareAge) {
		attached := false
		for _, ref := range r.Parents {
			if !r.IsHTTP() || !r.IsParent(ref, route.KindService, s.Key()) {
				continue
			}
			for _, port := range attachMesh(r, ref, s).ports {
				ports[port], attached = true, true
			}
		}
		if !attached {
			continue
		}
		c := cache.Compile(r, lookup)
		for i := range c.Routes {
			all = append(all, &c.Routes[i])
		}
	}
	for i, port := range slices.Sorted(maps.Keys(ports)) {
		l := envoy.Listener{Port: uint32(port)}
		if i == 0 {
			l.Routes = all
		}
		m.HTTP = append(m.HTTP, l)
	}
	return m
}

// reconcileMesh writes the CiliumEnvoyConfig of a Service that routes have as their parent.
func (c *controller) reconcileMesh(ctx context.Context, key, of slim.Key) (reconcile.Result, error) {
	s, exists := c.services.Get(of)
	if !exists || !s.DeletionTimestamp.IsZero() {
		c.meshReports.Forget(of)
		c.imports.Drop(key)
		c.dropPolicies(key)
		c.agents.Drop(key)
		c.forget(key)
		return reconcile.Result{Reason: isGone}, nil
	}
	if known, err := c.needPolicies(ctx, key); err != nil || !known {
		return reconcile.Result{RequeueAfter: unreadableRetry, Reason: isWaiting}, err
	}
	if c.hidesRoute(func(namespace string) bool { return namespace == of.Namespace }) {
		return reconcile.Result{RequeueAfter: unreadableRetry, Reason: unreadable}, nil
	}
	routes, waiting := c.routes(routesByParent, key), false
	switch {
	case s.hidesPorts(): // what there is stays
		return reconcile.Result{Reason: isLarge}, nil
	case slices.ContainsFunc(routes, func(r *route.Route) bool { return isOfMesh(r, s) && c.cache.IsUnknown(r, c.lookup(key, &waiting)) }):
		return reconcile.Result{Reason: unknownRoute}, nil
	}
	if !anyAsks(routes) {
		c.agents.Drop(key)
	}
	model := planMesh(s, routes, c.cache, c.lookup(key, &waiting))
	if waiting {
		return reconcile.Result{Reason: isWaiting}, nil
	}
	owner := &metav1.OwnerReference{APIVersion: core.String(), Kind: route.KindService, Name: of.Name, UID: s.UID.API(), Controller: new(true)}
	o := c.options(of)
	o.PortHosts = false // the ports of a Service share their routes
	t, spec, err := translateInTurn(ctx, &c.state(key).translator, model, o)
	if err != nil && !envoyres.ConcernsUser(err) {
		return reconcile.Result{}, err
	}
	about := corev1.ObjectReference{APIVersion: core.String(), Kind: route.KindService, Namespace: of.Namespace, Name: of.Name, UID: s.UID.API()}
	if err == nil && t.Empty {
		c.meshReports.Set(route.KindService, about)
		if err := envoyres.Delete(k8s.WithManySources(ctx), c.Client, c.configs, of, owner); err != nil {
			return reconcile.Result{Reason: noRoutes}, err
		}
		return reconcile.Result{Reason: noRoutes}, c.writeMeshStatus(ctx, s, nil)
	}
	if err == nil {
		_, err = envoyres.Write(k8s.WithOneSource(ctx), c.Client, c.configs, envoyres.Desired{
			Key: of, Owner: owner, Former: c.formerOwner(key), Spec: spec, Labels: map[string]string{gatewayLabel: envoy.Shorten(of.Name)},
		})
	}
	if err != nil && !envoyres.ConcernsUser(err) {
		return reconcile.Result{}, err
	}
	result, reportErr := c.report(c.meshReports, about, t.Problems, err)
	return result, errors.Join(reportErr, c.writeMeshStatus(ctx, s, meshConditions(err)))
}

// translateInTurn translates and encodes a model. What needs much memory has the turn of large objects meanwhile, and no longer (K8S-26).
func translateInTurn(ctx context.Context, by *envoy.Translator, m envoy.Model, o envoy.Options) (t envoy.Translation, spec envoy.Encoded, err error) {
	ctx, release := k8s.WithTurn(ctx)
	defer release()
	if t, err = by.Translate(m, awaiting(ctx, o)); err == nil && !t.Empty {
		spec, err = envoy.Encode(t.Spec)
	}
	return t, spec, err
}

// Conditions of a Service that is a parent of routes (GW-58).
const (
	meshAttached   = "gamma.cilium.io/GammaRoutesAttached"
	meshProgrammed = "gamma.cilium.io/GammaRoutesProgrammed"
)

// meshConditions are those of a Service with routes. refused is why its configuration was not written, nil if it was.
func meshConditions(refused error) map[string]condition.Condition {
	programmed := condition.True(gatewayv1.GatewayReasonProgrammed, "Gamma Service has been programmed")
	if refused != nil {
		programmed = condition.False(gatewayv1.GatewayReasonNoResources, refused.Error())
	}
	return map[string]condition.Condition{
		meshAttached:   condition.True(gatewayv1.RouteReasonAccepted, "Gamma Service has routes attached"),
		meshProgrammed: programmed,
	}
}

// writeMeshStatus writes the conditions of a Service, or takes off those that are not among want, if that differs and the role allows
// it. Conditions of other types stay.
func (c *controller) writeMeshStatus(ctx context.Context, s *service, want map[string]condition.Condition) error {
	ref := k8s.Ref{Resource: services.Resource(), Namespace: s.Namespace.String(), Name: s.Name, Subresource: "status", UID: s.UID.API()}
	if c.Permissions.Denies("update", ref) {
		return nil
	}
	now := metav1.NewTime(c.Deps.Plan.Now())
	apply := func(to *[]metav1.Condition) (changed bool) {
		for _, kind := range []string{meshAttached, meshProgrammed} {
			if is, wanted := want[kind]; wanted {
				changed = setCondition(to, kind, is, 0, now) || changed // Services of older API servers have no generation
			} else {
				changed = condition.Remove(to, kind) || changed
			}
		}
		return changed
	}
	if has := slices.Clone(s.Status.Conditions); !apply(&has) {
		return nil
	}
	return modifyStatus(k8s.WithOneSource(ctx), c.Client, ref, func(of *corev1.ServiceStatus) { apply(&of.Conditions) })
}

// formerOwner finds the controllers that the original gives the CiliumEnvoyConfig of a Service: one of its routes (GW-48).
func (c *controller) formerOwner(service slim.Key) func(kind, name string, uid types.UID) bool {
	return func(kind, name string, uid types.UID) bool {
		return slices.ContainsFunc(c.routes(routesByParent, service), func(r *route.Route) bool {
			return r.Kind == kind && r.Name == name && r.UID.API() == uid
		})
	}
}

// report reports what is not served of an object. What is for the user to remedy is no failure.
func (c *controller) report(to *envoyres.Reports, about corev1.ObjectReference, problems []envoy.Problem, err error) (reconcile.Result, error) {
	var notices []envoyres.Notice
	for _, p := range problems {
		notices = append(notices, envoyres.Notice{Reason: "NotTranslated", Message: p.Source.String() + ": " + p.Message})
	}
	if envoyres.ConcernsUser(err) {
		to.Set(about.Kind, about, append(notices, envoyres.Notice{Reason: "NotWritten", Message: err.Error(), Degrades: true})...)
		return reconcile.Result{Reason: isRefused}, nil
	}
	if err == nil {
		to.Set(about.Kind, about, notices...)
	}
	return reconcile.Result{}, err
}
