// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package validation

// Config says whether policies are validated.
type Config struct {
	ValidateNetworkPolicy bool `flag:"validate-network-policy" usage:"Check network policies, and set their Valid condition"`
}
