// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package identitygc

import (
	"golang.org/x/time/rate"

	"github.com/skep-operator/skep/runtime/cell"
)

// Cell provides the collectors of identities with their common rate and metrics, in the term.
var Cell = cell.Module("identitygc", "Limits the rate at which unused identities are deleted, wherever they are stored",
	cell.Config(DefaultConfig),
	cell.EnabledBy(Enabled),

	cell.Metrics(NewMetrics),
	cell.Provide(NewBudget),
)

// Budget limits the deletes of all collectors together. They are spread over the interval, so that no window of that length
// has more than the limit, except for the objects of one request.
type Budget struct{ *rate.Limiter }

// NewBudget returns the limit of a configuration.
func NewBudget(c Config) Budget {
	perSecond := float64(c.IdentityGCRateLimit) / c.IdentityGCRateInterval.Seconds()
	return Budget{rate.NewLimiter(rate.Limit(perSecond), 1)}
}
