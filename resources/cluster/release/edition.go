// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package release

import "github.com/skep-operator/skep/resources/api"

// Edition is what definitions are like for the agents of a release.
func (r Release) Edition() api.Edition {
	return api.Edition{
		Label: SchemaVersion.In(r),
		Admission: api.Admission{
			RefuseRequires:           EmptyRequires.In(r),
			RefuseKafka:              OnlyHTTPAndDNS.In(r),
			RequireSpec:              PolicyNeedsSpec.In(r),
			FixMaskSize:              FixedMaskSize.In(r),
			RefuseIdleServiceOptions: ServiceOptionsOfServices.In(r),
		},
	}
}
