// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package route

import (
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
)

// IsAllowedBy reports whether a ReferenceGrant allows a reference to an object of its namespace.
func (q Query) IsAllowedBy(g gatewayv1.ReferenceGrantSpec) bool {
	group := gatewayv1.Group("")
	if q.ToKind == KindImport {
		group = ImportGroup
	}
	for _, from := range g.From {
		if from.Group != gatewayv1.GroupName || string(from.Kind) != q.FromKind || string(from.Namespace) != q.FromNamespace {
			continue
		}
		for _, to := range g.To {
			if to.Group == group && string(to.Kind) == q.ToKind && (to.Name == nil || *to.Name == "" || string(*to.Name) == q.Key.Name) {
				return true
			}
		}
	}
	return false
}
