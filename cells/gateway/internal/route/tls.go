// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package route

import (
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/skep-operator/skep/resources/domain/envoy"
)

// backends yields the references of a TLSRoute to backends.
func (r *TLS) backends(yield func(gatewayv1.BackendObjectReference) bool) {
	for _, rule := range r.Spec.Rules {
		for _, b := range rule.BackendRefs {
			if !yield(b.BackendObjectReference) {
				return
			}
		}
	}
}

// compile takes the backends of the rules. All rules match the same connections: the first one counts. TLS that is passed through
// is that of the backend, whatever its policy.
func (r *TLS) compile(c *compiler) {
	c.rules = len(r.Spec.Rules)
	c.keepFirst()
	for _, rule := range r.Spec.Rules {
		var passed, terminated []envoy.Backend
		through := compiler{route: c.route, lookup: c.lookup.WithoutPolicies()}
		for _, ref := range rule.BackendRefs {
			through.backend(&passed, ref, func(*envoy.Backend) {})
			c.backend(&terminated, ref, func(*envoy.Backend) {})
		}
		c.Passthrough, c.Terminated = append(c.Passthrough, passed), append(c.Terminated, terminated)
	}
}
