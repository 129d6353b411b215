// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package gateway

import (
	"fmt"
	"slices"

	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/skep-operator/skep/cells/gateway/internal/condition"
	"github.com/skep-operator/skep/cells/gateway/internal/route"
	"github.com/skep-operator/skep/resources/domain/envoy"
	"github.com/skep-operator/skep/resources/stream/slim"
)

// tlsTarget is what a BackendTLSPolicy is for: a port of a Service by its name, or all ports for "".
type tlsTarget struct {
	service slim.Key
	port    string
}

// targets are those of a policy, without references to something else.
func (p *tlsPolicy) targets() (all []tlsTarget) {
	for _, ref := range p.Spec.TargetRefs {
		if isService(ref) {
			all = append(all, tlsTarget{slim.Key{Namespace: p.Namespace.String(), Name: string(ref.Name)}, sectionOf(ref)})
		}
	}
	return all
}

func isService(ref gatewayv1.LocalPolicyTargetReferenceWithSectionName) bool {
	return ref.Group == "" && ref.Kind == route.KindService
}

func sectionOf(ref gatewayv1.LocalPolicyTargetReferenceWithSectionName) string {
	if ref.SectionName == nil {
		return ""
	}
	return string(*ref.SectionName)
}

// hasTarget reports whether a policy has a target. It is asked for each port of each route.
func (p *tlsPolicy) hasTarget(of tlsTarget) bool {
	return p.Namespace.String() == of.service.Namespace && slices.ContainsFunc(p.Spec.TargetRefs, func(ref gatewayv1.LocalPolicyTargetReferenceWithSectionName) bool {
		return isService(ref) && string(ref.Name) == of.service.Name && sectionOf(ref) == of.port
	})
}

// namesPortOf reports whether a policy is for a port of a Service, and not for all.
func (p *tlsPolicy) namesPortOf(service slim.Key) bool {
	return slices.ContainsFunc(p.targets(), func(t tlsTarget) bool { return t.service == service && t.port != "" })
}

// services are the Services of the targets.
func (p *tlsPolicy) services() (keys []slim.Key) {
	for _, t := range p.targets() {
		if !slices.Contains(keys, t.service) {
			keys = append(keys, t.service)
		}
	}
	return keys
}

// authorities are the ConfigMaps that a policy refers to.
func (p *tlsPolicy) authorities() (keys []slim.Key) {
	for _, ref := range p.Spec.Validation.CACertificateRefs {
		if ref.Group == "" && ref.Kind == kindConfigMap {
			keys = append(keys, slim.Key{Namespace: p.Namespace.String(), Name: string(ref.Name)})
		}
	}
	return keys
}

// winner is the policy that goes first of those with a target, nil if there is none.
func winner(all []*tlsPolicy, of tlsTarget) (first *tlsPolicy) {
	for _, p := range all {
		if p.hasTarget(of) && (first == nil || route.CompareObjects(&p.ObjectMeta, &first.ObjectMeta) < 0) {
			first = p
		}
	}
	return first
}

// policyOf is the policy of a port, nil if there is none: one that names the port goes before those that do not.
func policyOf(all []*tlsPolicy, service slim.Key, port string) *tlsPolicy {
	if p := winner(all, tlsTarget{service, port}); p != nil {
		return p
	}
	return winner(all, tlsTarget{service: service})
}

// tlsPolicies are the BackendTLSPolicies of a cluster, and what they refer to.
type tlsPolicies struct {
	// of are those of a Service.
	of func(service slim.Key) []*tlsPolicy
	// hasPort reports whether a Service has a port of that name.
	hasPort func(service slim.Key, port string) bool
	// authority answers for a ConfigMap: whether it exists, and whether it has certificates of authorities.
	authority func(slim.Key) route.Answer
}

// policyResult is what becomes of a policy.
type policyResult struct {
	accepted, resolved condition.Condition
	// tls is how its backends are spoken to, nil if they cannot be. It does not say whether another policy goes first.
	tls *envoy.UpstreamTLS
}

func refusedPolicy(reason gatewayv1.PolicyConditionReason, format string, args ...any) condition.Condition {
	return condition.False(reason, fmt.Sprintf(format, args...))
}

// settings decides how the backends of a policy are spoken to.
func (c tlsPolicies) settings(p *tlsPolicy) policyResult {
	v := policyResult{
		accepted: condition.True(gatewayv1.PolicyReasonAccepted, "Accepted BackendTLSPolicy"),
		resolved: condition.True(gatewayv1.BackendTLSPolicyReasonResolvedRefs, "Resolved Refs"),
	}
	refs, valid := p.Spec.Validation.CACertificateRefs, 0
	for _, ref := range refs {
		if why := c.resolve(p, ref); why.OK {
			valid++
		} else if v.resolved.OK { // the first one is reported
			v.resolved = why
		}
	}
	switch {
	case len(refs) == 0:
		v.accepted = refusedPolicy(gatewayv1.PolicyReasonInvalid, "wellKnownCACertificates are not supported, since those of the proxy are not known: name a ConfigMap in caCertificateRefs")
	case valid == 0:
		v.accepted = refusedPolicy(gatewayv1.BackendTLSPolicyReasonNoValidCACertificate, "No caCertificateRef is valid: %s", v.resolved.Message)
	case len(refs) > 1:
		v.accepted = refusedPolicy(gatewayv1.PolicyReasonInvalid, "Several caCertificateRefs are not supported: put all certificates into the key %s of one ConfigMap", authorityKey)
	}
	if !v.accepted.OK {
		return v
	}
	tls := &envoy.UpstreamTLS{ServerName: string(p.Spec.Validation.Hostname), Authority: envoy.Name(p.authorities()[0])}
	for _, n := range p.Spec.Validation.SubjectAltNames {
		if n.Type == gatewayv1.URISubjectAltNameType {
			tls.Names = append(tls.Names, envoy.SubjectAltName{IsURI: true, Value: string(n.URI)})
		} else {
			tls.Names = append(tls.Names, envoy.SubjectAltName{Value: string(n.Hostname)})
		}
	}
	if err := tls.Check(); err != nil {
		v.accepted = refusedPolicy(gatewayv1.PolicyReasonInvalid, "hostname or subjectAltNames are not valid: %v", err)
		return v
	}
	v.tls = tls
	return v
}

// resolve decides about a reference to certificates of authorities.
func (c tlsPolicies) resolve(p *tlsPolicy, ref gatewayv1.LocalObjectReference) condition.Condition {
	if ref.Group != "" || ref.Kind != kindConfigMap {
		return refusedPolicy(gatewayv1.BackendTLSPolicyReasonInvalidKind, "Unsupported kind %s of group %q: only ConfigMaps have certificates of authorities", ref.Kind, ref.Group)
	}
	switch a := c.authority(slim.Key{Namespace: p.Namespace.String(), Name: string(ref.Name)}); {
	case !a.Exists:
		return refusedPolicy(gatewayv1.BackendTLSPolicyReasonInvalidCACertificateRef, "ConfigMap %q not found", ref.Name)
	case !a.OK:
		return refusedPolicy(gatewayv1.BackendTLSPolicyReasonInvalidCACertificateRef, "ConfigMap %q has no certificates in PEM under the key %s", ref.Name, authorityKey)
	}
	return condition.Condition{OK: true}
}

// evaluate decides what is said of a policy.
func (c tlsPolicies) evaluate(p *tlsPolicy) policyResult {
	v := c.settings(p)
	for _, t := range p.targets() {
		first := winner(c.of(t.service), t)
		switch {
		case first != nil && first.Key() != p.Key():
			v.accepted = refusedPolicy(gatewayv1.PolicyReasonConflicted, "BackendTLSPolicy %q goes first for the same target %q", first.Name, t.service.Name)
			return v
		case v.accepted.OK && t.port != "" && !c.hasPort(t.service, t.port):
			v.accepted = refusedPolicy(gatewayv1.PolicyReasonTargetNotFound, "Service %q has no port named %q", t.service.Name, t.port)
		}
	}
	return v
}

// at answers how a port of a Service is spoken to: whether there is a policy, and whether it is valid.
func (c tlsPolicies) at(service slim.Key, port string) route.Answer {
	p := policyOf(c.of(service), service, port)
	if p == nil {
		return route.Answer{}
	}
	tls := c.settings(p).tls
	return route.Answer{Exists: true, OK: tls != nil, TLS: tls}
}
