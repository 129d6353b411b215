// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package api

import (
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Versions returns the versions in which a resource of these kinds, or a ReferenceGrant, may be served, the newest first, nil for a
// resource of others. Duties declare the newest; where the installed definition does not serve it, requests ask for the next one.
func Versions(of schema.GroupResource) []string { return served[of] }

var served = func() map[schema.GroupResource][]string {
	all := map[schema.GroupResource][]string{
		// Definitions of the Gateway API before 1.5 have no v1; later ones may have nothing else.
		{Group: "gateway.networking.k8s.io", Resource: "referencegrants"}: {"v1", "v1beta1"},
	}
	for _, k := range slices.Concat(kinds, multiclusterKinds) {
		all[k.Resource.GroupResource()] = k.Served()
	}
	return all
}()
