// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package endpointgc

import (
	"github.com/skep-operator/skep/resources/cluster"
	"github.com/skep-operator/skep/runtime/cell"
)

// Validate implements the check of config structs.
func (c Config) Validate() error {
	if c.CiliumEndpointGCInterval < 0 {
		return cell.Invalid(intervalFlag, "must not be negative")
	}
	return nil
}

// validate refuses to have no periodic collection where identities are objects:
// endpoints that are left over would keep them for ever.
func validate(c Config, shared cluster.Config) error {
	if mode := shared.IdentityMode(); c.CiliumEndpointGCInterval == 0 && mode != "kvstore" {
		return cell.Invalid(intervalFlag, "must not be 0 where identities are kept as objects (%s): endpoints that are left over would keep them for ever", mode)
	}
	return nil
}
