// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package gateway

import (
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
)

// allows reports whether a ReferenceGrant allows a reference to an object of its namespace and of a group.
func allows(g *grant, q question, group string) bool {
	for _, from := range g.Spec.From {
		if from.Group != gatewayv1.GroupName || string(from.Kind) != q.fromKind || string(from.Namespace) != q.fromNamespace {
			continue
		}
		for _, to := range g.Spec.To {
			if string(to.Group) == group && string(to.Kind) == q.toKind && (to.Name == nil || *to.Name == "" || string(*to.Name) == q.key.Name) {
				return true
			}
		}
	}
	return false
}
