// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package identitygc

import (
	"time"

	"github.com/spf13/pflag"
	"golang.org/x/time/rate"

	"github.com/skep-operator/skep/runtime/cell"
)

// Config says how often identities are looked at, how long they have to be unused,
// and how many may be deleted in a time.
type Config struct {
	IdentityGCInterval       time.Duration
	IdentityHeartbeatTimeout time.Duration
	IdentityGCRateLimit      int64
	IdentityGCRateInterval   time.Duration
}

const (
	intervalFlag     = "identity-gc-interval"
	timeoutFlag      = "identity-heartbeat-timeout"
	rateLimitFlag    = "identity-gc-rate-limit"
	rateIntervalFlag = "identity-gc-rate-interval"
)

// Flags implements cell.Flagger.
func (c Config) Flags(fs *pflag.FlagSet) {
	fs.Duration(intervalFlag, c.IdentityGCInterval, "Time between two looks for identities that no endpoint uses. 0 deletes none")
	fs.Duration(timeoutFlag, c.IdentityHeartbeatTimeout, "Time for which a CiliumIdentity that no endpoint uses is marked before it is deleted")
	fs.Int64(rateLimitFlag, c.IdentityGCRateLimit, "Identities that may be deleted per --"+rateIntervalFlag)
	fs.Duration(rateIntervalFlag, c.IdentityGCRateInterval, "Time that --"+rateLimitFlag+" is for")
}

// Validate implements the check of config structs.
func (c Config) Validate() error {
	switch {
	case c.IdentityGCInterval < 0:
		return cell.Invalid(intervalFlag, "must not be negative; 0 deletes no identities")
	case c.IdentityHeartbeatTimeout < 0:
		return cell.Invalid(timeoutFlag, "must not be negative")
	case c.IdentityGCRateLimit < 1:
		return cell.Invalid(rateLimitFlag, "must be at least 1; to delete no identities set --%s=0", intervalFlag)
	case c.IdentityGCRateInterval <= 0:
		return cell.Invalid(rateIntervalFlag, "must be more than 0")
	}
	return nil
}

// budget bounds deletes of identities, wherever they are kept. Deletes are spread
// over the interval, so that no stretch of its length has more than the limit,
// wherever it begins.
type budget struct{ *rate.Limiter }

func newBudget(c Config) budget {
	perSecond := float64(c.IdentityGCRateLimit) / c.IdentityGCRateInterval.Seconds()
	return budget{rate.NewLimiter(rate.Limit(perSecond), 1)}
}
