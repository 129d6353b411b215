// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package identitygc

import (
	"time"

	"github.com/skep-operator/skep/runtime/cell"
)

// Config is the interval of garbage collections, the time that identities must be unused, and the rate of deletes.
type Config struct {
	IdentityGCInterval       time.Duration `flag:"identity-gc-interval" usage:"Interval between garbage collections of identities that no endpoint uses. 0 disables them" min:"100ms" zero:"deletes no identities"`
	IdentityHeartbeatTimeout time.Duration `flag:"identity-heartbeat-timeout" usage:"How long a CiliumIdentity must be marked as unused before it is deleted" min:"100ms" zero:"deletes at the next look"`
	IdentityGCRateLimit      int64         `flag:"identity-gc-rate-limit" usage:"Maximum number of identities deleted per --identity-gc-rate-interval"`
	IdentityGCRateInterval   time.Duration `flag:"identity-gc-rate-interval" usage:"Interval of --identity-gc-rate-limit" min:"100ms"`
}

// DefaultConfig holds the defaults of the flags.
var DefaultConfig = Config{
	IdentityGCInterval: 15 * time.Minute, IdentityHeartbeatTimeout: 30 * time.Minute,
	IdentityGCRateLimit: 2500, IdentityGCRateInterval: time.Minute,
}

const (
	intervalFlag  = "identity-gc-interval"
	rateLimitFlag = "identity-gc-rate-limit"
)

// Validate implements the check of config structs.
func (c Config) Validate() error {
	if c.IdentityGCRateLimit < 1 {
		return cell.Invalid(rateLimitFlag, "must be at least 1; to delete no identities set --%s=0", intervalFlag)
	}
	return nil
}

// Enabled is the condition of the collectors.
var Enabled = cell.When("identities are looked at", []string{intervalFlag}, func(c Config) bool { return c.IdentityGCInterval != 0 })
