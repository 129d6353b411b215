// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package api

import (
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Versions returns the versions in which a resource of these kinds may be served, the newest first, nil for a resource of
// others. Duties declare the newest; where the installed definition does not serve it, requests ask for the next one.
func Versions(of schema.GroupResource) []string { return served[of] }

var served = func() map[schema.GroupResource][]string {
	all := map[schema.GroupResource][]string{}
	for _, k := range slices.Concat(kinds, multiclusterKinds) {
		all[k.Resource.GroupResource()] = k.Served()
	}
	return all
}()
