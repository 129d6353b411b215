// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package derivative

import "time"

// Config says how often groups are looked up.
type Config struct {
	DerivedPoliciesRefreshInterval  time.Duration `flag:"derived-policies-refresh-interval" usage:"Interval between look-ups of the groups in network policies; 0 for no derived policies" min:"1s" zero:"derives none"`
	PolicyExternalGroupSyncInterval time.Duration `flag:"policy-external-group-sync-interval" usage:"Interval between look-ups of the groups in network policies that have CiliumCIDRGroups" min:"1s"`
}

func (c Config) enabled() bool { return c.DerivedPoliciesRefreshInterval > 0 }
