// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package main

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// definitionsUnderFaults are deleted and aged by hand. They are looked at once in a
// term.
func definitionsUnderFaults(f *turmoil) underFaults {
	const version = "io.cilium.k8s.crd.schema.version"
	schemaOf := func(kind string) string {
		u, err := f.dynamic.Resource(definitions).Get(f.t.Context(), definitionName(f.t, kind), metav1.GetOptions{})
		if err != nil {
			return err.Error()
		}
		return u.GetLabels()[version]
	}
	const gone, aged = "CiliumL2AnnouncementPolicy", "CiliumCIDRGroup"
	current := "" // as the operator made it at first
	return underFaults{
		name: "definitions",
		newTerm: func() {
			f.deleteDefinition(definitionName(f.t, gone))
			f.patch(definitions, definitionName(f.t, aged), `{"metadata":{"labels":{"`+version+`":"1.0.0"}}}`)
		},
		rest: func() error {
			if !f.serves(definitionName(f.t, gone)) {
				return fmt.Errorf("%s is not served", gone)
			}
			switch has := schemaOf(aged); {
			case !f.serves(definitionName(f.t, aged)):
				return fmt.Errorf("%s is not served", aged)
			case current == "":
				current = has
			case has != current:
				return fmt.Errorf("%s has version %s, not %s", aged, has, current)
			}
			return nil
		},
	}
}
