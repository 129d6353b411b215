// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package gateway

import (
	"context"
	"fmt"
	"slices"
	"strconv"
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

// featureListenerSet is a feature that the API server may not have.
const featureListenerSet = "ListenerSet"

// allFeatures are those of the Gateway API that can be served here beside policyFeatures, sorted.
var allFeatures = []string{
	"GRPCRoute",
	"GRPCRouteNamedRouteRule",
	"Gateway",
	"GatewayAddressEmpty",
	"GatewayHTTPListenerIsolation",
	"GatewayInfrastructure",
	"GatewayInfrastructurePropagation",
	"GatewayPort8080",
	"GatewayStaticAddresses",
	"HTTPRoute",
	"HTTPRoute303RedirectStatusCode",
	"HTTPRoute307RedirectStatusCode",
	"HTTPRoute308RedirectStatusCode",
	"HTTPRouteBackendProtocolH2C",
	"HTTPRouteBackendProtocolWebSocket",
	"HTTPRouteBackendRequestHeaderModification",
	"HTTPRouteBackendTimeout",
	"HTTPRouteCORS",
	"HTTPRouteDestinationPortMatching",
	"HTTPRouteHostRewrite",
	"HTTPRouteMethodMatching",
	"HTTPRouteNamedRouteRule",
	"HTTPRouteParentRefPort",
	"HTTPRoutePathRedirect",
	"HTTPRoutePathRewrite",
	"HTTPRoutePortRedirect",
	"HTTPRouteQueryParamMatching",
	"HTTPRouteRequestMirror",
	"HTTPRouteRequestMultipleMirrors",
	"HTTPRouteRequestPercentageMirror",
	"HTTPRouteRequestTimeout",
	"HTTPRouteResponseHeaderModification",
	"HTTPRouteRetry",
	"HTTPRouteRetryBackendTimeout",
	"HTTPRouteRetryConnectionError",
	"HTTPRouteSchemeRedirect",
	featureListenerSet,
	"Mesh",
	"MeshClusterIPMatching",
	"ReferenceGrant",
	route.KindTCP,
	"TLSRoute",
	"TLSRouteModeMixed",
	"TLSRouteModeTerminate",
	route.KindUDP,
}

// policyFeatures are those of BackendTLSPolicies.
var policyFeatures = []string{"BackendTLSPolicy", "BackendTLSPolicySANValidation"}

// supportedFeatures are those that are served, sorted, without those that are absent.
func supportedFeatures(absent map[string]bool) []string {
	return slices.DeleteFunc(slices.Concat(policyFeatures, allFeatures), func(name string) bool { return absent[name] })
}

// The releases of the Gateway API that are known here: of version 1, up to this minor.
const latestMinor = 6

// supportedVersion decides about the release that the definitions are of.
func supportedVersion(bundle string) condition.Condition {
	major, rest, _ := strings.Cut(strings.TrimPrefix(bundle, "v"), ".")
	minor, _, _ := strings.Cut(rest, ".")
	if n, err := strconv.Atoi(minor); err == nil && major == "1" && n <= latestMinor {
		return condition.True(gatewayv1.GatewayClassReasonSupportedVersion, "Gateway API CRD bundle version "+bundle+" is supported")
	}
	return condition.False(gatewayv1.GatewayClassReasonUnsupportedVersion, fmt.Sprintf("Gateway API CRD bundle version %q is not known: versions 1.0 to 1.%d are", bundle, latestMinor))
}

// features are the supported features as the installed schema has them: objects with a name, or names; nil for neither.
func features(supported []string, itemType string) []any {
	if itemType != "object" && itemType != "string" {
		return nil
	}
	all := []any{}
	for _, name := range supported {
		if itemType == "string" {
			all = append(all, name)
		} else {
			all = append(all, map[string]any{"name": name})
		}
	}
	return all
}

// reconcileClass writes the status of a GatewayClass.
func (c *controller) reconcileClass(ctx context.Context, key slim.Key) (reconcile.Result, error) {
	cl, exists := c.classes.Get(key)
	if !exists || !cl.DeletionTimestamp.IsZero() {
		c.dropClass(key)
		return reconcile.Result{Reason: isGone}, nil
	}
	if cl.Spec.ControllerName != controllerName {
		c.dropClass(key)
		return reconcile.Result{Reason: notOurs}, nil
	}
	_, problem, known := c.parametersOf(cl, key)
	if !known {
		return reconcile.Result{Reason: isWaiting}, nil
	}
	accepted := condition.True(gatewayv1.GatewayClassReasonAccepted, "Valid GatewayClass")
	if problem != "" {
		accepted = condition.False(gatewayv1.GatewayClassReasonInvalidParameters, "Invalid GatewayClass")
	}
	d, err := c.definition(ctx, classes.Resource().GroupResource())
	if err != nil {
		return reconcile.Result{}, err
	}
	installed, _ := c.installed.Get(slim.Key{Name: classes.Resource().GroupResource().String()})
	version := condition.Condition{}
	if installed != nil {
		version = supportedVersion(installed.Annotations.Get(bundleAnnotation))
	}
	now := metav1.NewTime(c.Deps.Plan.Now())
	apply := func(to *[]metav1.Condition) bool {
		changed := setCondition(to, string(gatewayv1.GatewayClassConditionStatusAccepted), accepted, cl.Generation, now)
		if version.Reason == "" {
			return changed
		}
		return setCondition(to, string(gatewayv1.GatewayClassConditionStatusSupportedVersion), version, cl.Generation, now) || changed
	}
	sets, err := c.needListenerSets(ctx, key)
	switch {
	case err != nil:
		return reconcile.Result{}, err
	case sets.awaitsRole:
		return sets.result(isWaiting), nil
	}
	policies, err := c.watchPolicies(ctx, key)
	if err != nil {
		return reconcile.Result{}, err
	}
	absent := map[string]bool{featureListenerSet: !sets.served}
	for _, name := range policyFeatures {
		absent[name] = !policies
	}
	for _, kind := range c.optional.kinds {
		v, err := c.servedVersion(ctx, kind)
		if err != nil {
			return reconcile.Result{}, err
		}
		absent[kind.kind] = kind.ifAllowed && v == nil
	}
	supported := supportedFeatures(absent)
	if problem != "" {
		supported = nil
	}
	want := features(supported, d.features)
	conditions := slices.Clone(cl.Status.Conditions)
	if !apply(&conditions) && (want == nil || equalFeatures(cl.Status.SupportedFeatures, supported)) {
		return sets.result(problem), nil
	}
	ref := k8s.Ref{Resource: classes.Resource(), Name: key.Name, Subresource: "status", UID: cl.UID.API()}
	return sets.result(problem), modifyStatus(ctx, c.Client, ref, func(s *classStatus) {
		apply(&s.Conditions)
		if want != nil {
			s.SupportedFeatures = want
		}
	})
}

// dropClass forgets what a class needs that is not served here any more.
func (c *controller) dropClass(key slim.Key) {
	c.classConfigs.Drop(key)
	c.sets.Drop(key)
	c.dropPolicies(key)
}

// watchPolicies reports whether BackendTLSPolicies are served. They are watched for each class then: their status may name Gateways
// that were deleted.
func (c *controller) watchPolicies(ctx context.Context, key slim.Key) (served bool, err error) {
	if served, err = c.servesPolicies(ctx); served {
		c.policies.Need(key)
	} else {
		c.dropPolicies(key)
	}
	return served, err
}

func equalFeatures(has []gatewayv1.SupportedFeature, want []string) bool {
	return slices.EqualFunc(has, want, func(f gatewayv1.SupportedFeature, name string) bool { return string(f.Name) == name })
}

// classStatus is what is written of the status of a GatewayClass.
type classStatus struct {
	Conditions        []metav1.Condition `json:"conditions,omitempty"`
	SupportedFeatures []any              `json:"supportedFeatures,omitempty"`
}

// parameters are those of a class.
type parameters struct {
	service serviceConfig
	// noGRPCWeb has requests of gRPC-Web not be turned into gRPC (GW-56).
	noGRPCWeb bool
}

// parametersOf are those of a class, or why there are none. known is false while it is not known yet.
func (c *controller) parametersOf(cl *class, key slim.Key) (config parameters, problem string, known bool) {
	ref := cl.Spec.ParametersRef
	if ref == nil {
		c.classConfigs.Drop(key)
		return config, "", true
	}
	of := classConfigs.Resource().GroupResource()
	switch {
	case string(ref.Group) != of.Group || ref.Kind != kindClassConfig || ref.Namespace == nil || *ref.Namespace == "" || ref.Name == "":
		c.classConfigs.Drop(key)
		return config, invalidParameters, true
	case !c.isInstalled(of):
		c.classConfigs.Drop(key)
		return config, noConfigCRD, true
	}
	store := c.classConfigs.Need(key)
	if store == nil {
		return config, "", false
	}
	has, exists := store.Get(slim.Key{Namespace: string(*ref.Namespace), Name: ref.Name})
	if !exists {
		return config, noConfig, true
	}
	if has.Spec.Service != nil {
		config.service = *has.Spec.Service
	}
	enabled := has.Spec.HTTPOptions.GRPCWebTranslation.Enabled
	config.noGRPCWeb = enabled != nil && !*enabled
	return config, "", true
}

// messageOf is what a Gateway is told of the parameters of its class.
func messageOf(problem string, ref *gatewayv1.ParametersReference) string {
	switch {
	case string(ref.Group) != classConfigs.Resource().Group || ref.Kind != kindClassConfig:
		return "Invalid GatewayClass parameters: spec.parametersRef.kind must be " + kindClassConfig
	case problem == invalidParameters:
		return "Invalid GatewayClass parametersRef: both name and namespace are required"
	case problem == noConfigCRD:
		return "Invalid GatewayClass parameters: there is no CRD of " + kindClassConfig
	}
	return fmt.Sprintf("Invalid GatewayClass parameters: %s %s/%s does not exist", kindClassConfig, *ref.Namespace, ref.Name)
}

// reconcileClassConfig writes the status of a CiliumGatewayClassConfig that a class of ours refers to.
func (c *controller) reconcileClassConfig(ctx context.Context, key, of slim.Key) (reconcile.Result, error) {
	if !c.isReferred(of) || !c.isInstalled(classConfigs.Resource().GroupResource()) {
		c.classConfigs.Drop(key)
		return reconcile.Result{Reason: notOurs}, nil
	}
	store := c.classConfigs.Need(key)
	if store == nil {
		return reconcile.Result{Reason: isWaiting}, nil
	}
	has, exists := store.Get(of)
	if !exists {
		return reconcile.Result{Reason: isGone}, nil
	}
	valid := condition.True(gatewayv1.GatewayClassReasonAccepted, "Valid GatewayClassConfig")
	now := metav1.NewTime(c.Deps.Plan.Now())
	apply := func(to *[]metav1.Condition) bool {
		return setCondition(to, string(gatewayv1.GatewayClassConditionStatusAccepted), valid, has.Generation, now)
	}
	if conditions := slices.Clone(has.Status.Conditions); !apply(&conditions) {
		return reconcile.Result{}, nil
	}
	ref := k8s.Ref{Resource: classConfigs.Resource(), Namespace: of.Namespace, Name: of.Name, Subresource: "status", UID: has.UID.API()}
	return reconcile.Result{}, modifyStatus(k8s.WithOneSource(ctx), c.Client, ref, func(s *classConfigStatus) { apply(&s.Conditions) })
}

// isReferred reports whether a class of ours refers to a CiliumGatewayClassConfig.
func (c *controller) isReferred(config slim.Key) bool {
	for cl := range stream.ByIndex(c.classes, classesByConfig, config) {
		if cl.Spec.ControllerName == controllerName {
			return true
		}
	}
	return false
}
