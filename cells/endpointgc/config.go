// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package endpointgc

import (
	"time"

	"github.com/skep-operator/skep/resources/cluster"
	"github.com/skep-operator/skep/runtime/cell"
	"github.com/skep-operator/skep/runtime/config"
)

// identityIntervalFlag is the option of identitygc, for which orphaned endpoints are references.
const identityIntervalFlag = "identity-gc-interval"

// validate requires the periodic collection where CiliumIdentities are collected: orphaned endpoints would keep them for
// ever. Without identitygc, the original deletes all CiliumEndpoints once, including those of running pods, which agents
// do not recreate.
func validate(c Config, shared cluster.Config, v *config.Values) error {
	mode := shared.IdentityMode()
	if c.CiliumEndpointGCInterval != 0 || mode == "kvstore" {
		return nil
	}
	e, known := v.Lookup(identityIntervalFlag)
	if interval, err := time.ParseDuration(e.Value); known && (err != nil || interval != 0) {
		return cell.Invalid(intervalFlag, "must not be 0 where identities are kept as objects (%s) and are collected (--%s): endpoints that are left over would keep them for ever", mode, identityIntervalFlag)
	}
	return cell.Questionable(intervalFlag, "should not be 0 where identities are kept as objects (%s): no CiliumEndpoint is deleted, whereas the original deletes all of them once", mode)
}
