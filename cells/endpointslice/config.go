// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package endpointslice

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"time"

	"golang.org/x/time/rate"

	"github.com/skep-operator/skep/resources/cluster/release"
	"github.com/skep-operator/skep/runtime/cell"
	"github.com/skep-operator/skep/runtime/config"
)

// Config says how endpoints are grouped.
type Config struct {
	CESMaxCiliumEndpointsPerCES int           `flag:"ces-max-ciliumendpoints-per-ces" usage:"Maximum number of endpoints in a CiliumEndpointSlice"`
	CESSliceMode                string        `flag:"ces-slice-mode" usage:"How endpoints are grouped into CiliumEndpointSlices: identity (one identity per slice where possible) or fcfs (any endpoints of a namespace, which needs fewer slices); from 1.18 on fcfs unless it is given"`
	CESRateLimits               string        `flag:"ces-rate-limits" usage:"Write rate of CiliumEndpointSlices by cluster size, as a JSON list of nodes, limit (per second) and burst; up to 1.18 limit is capped at 50, burst at 100"`
	CESCleanupGrace             time.Duration `flag:"ces-cleanup-grace" usage:"How long CiliumEndpointSlices that are no longer in use must be unchanged before they are deleted; longer than a restart of all agents takes. 0 keeps them" min:"100ms" zero:"keeps them"`

	// Release is that of the cluster, and ModeGiven whether the option is given: from 1.18 on fcfs is the default.
	Release   release.Release `flag:"-"`
	ModeGiven bool            `flag:"-"`

	// Options of the original without effect.
	CESWriteQPSLimit            float64  `flag:"ces-write-qps-limit" usage:"No effect" deprecated:"it has no effect; set --ces-rate-limits"`
	CESWriteQPSBurst            int      `flag:"ces-write-qps-burst" usage:"No effect" deprecated:"it has no effect; set --ces-rate-limits"`
	CESEnableDynamicRateLimit   bool     `flag:"ces-enable-dynamic-rate-limit" usage:"No effect" deprecated:"it has no effect; set --ces-rate-limits"`
	CESDynamicRateLimitNodes    []string `flag:"ces-dynamic-rate-limit-nodes" usage:"No effect" deprecated:"it has no effect; set --ces-rate-limits"`
	CESDynamicRateLimitQPSLimit []string `flag:"ces-dynamic-rate-limit-qps-limit" usage:"No effect" deprecated:"it has no effect; set --ces-rate-limits"`
	CESDynamicRateLimitQPSBurst []string `flag:"ces-dynamic-rate-limit-qps-burst" usage:"No effect" deprecated:"it has no effect; set --ces-rate-limits"`
}

var defaultConfig = Config{
	CESMaxCiliumEndpointsPerCES: 100,
	CESSliceMode:                modeIdentity,
	CESRateLimits:               `[{"nodes":0,"limit":10,"burst":20},{"nodes":100,"limit":50,"burst":100}]`,
	CESCleanupGrace:             24 * time.Hour,
}

const (
	maxFlag     = "ces-max-ciliumendpoints-per-ces"
	modeFlag    = "ces-slice-mode"
	limitsFlag  = "ces-rate-limits"
	cleanupFlag = "ces-cleanup-grace"
)

const (
	modeIdentity = "identity"
	modeFCFS     = "fcfs"
)

// deprecatedModes are the current names of modes by their deprecated names.
var deprecatedModes = map[string]string{"cesSliceModeIdentity": modeIdentity, "cesSliceModeFCFS": modeFCFS}

// Derive sets what follows from the release.
func (c *Config) Derive(values *config.Values) {
	c.Release, c.ModeGiven = release.Find(values).Release, values.Given(modeFlag)
}

// mode is the mode by its current name, that of the release if none is given (CES-32).
func (c Config) mode() string {
	if !c.ModeGiven && release.MixedSlices.In(c.Release) {
		return modeFCFS
	}
	if now, deprecated := deprecatedModes[c.CESSliceMode]; deprecated {
		return now
	}
	if release.MixedSlices.In(c.Release) && c.CESSliceMode != modeIdentity {
		return modeFCFS // the original knows no modes any more
	}
	return c.CESSliceMode
}

func (c Config) byIdentity() bool { return c.mode() == modeIdentity }

// validate runs where slices are written.
func validate(c Config) error {
	switch {
	case c.CESMaxCiliumEndpointsPerCES < 1:
		return cell.Invalid(maxFlag, "must be at least 1")
	case c.mode() != modeIdentity && c.mode() != modeFCFS:
		return cell.Invalid(modeFlag, "must be %s or %s", modeIdentity, modeFCFS)
	}
	if _, old := deprecatedModes[c.CESSliceMode]; c.ModeGiven && !old && c.CESSliceMode != c.mode() {
		return cell.Questionable(modeFlag, "should be %s or %s; it means %s", modeIdentity, modeFCFS, c.mode())
	}
	steps, err := c.limits()
	if err == nil && steps[0].Nodes < 0 { // in their order
		err = cell.Questionable(limitsFlag, "step 1: nodes is negative, which counts as 0")
	}
	return err
}

// warnDeprecatedMode logs a deprecated name of the mode.
func warnDeprecatedMode(c Config, log *slog.Logger) {
	if now, deprecated := deprecatedModes[c.CESSliceMode]; deprecated {
		log.Warn("the name of the slice mode is deprecated", modeFlag, c.CESSliceMode, "current", now)
	}
}

// step is the write rate from a number of nodes on.
type step struct {
	Nodes int     `json:"nodes"`
	Limit float64 `json:"limit"`
	Burst int     `json:"burst"`
}

// Higher limits are capped to these up to 1.18.
const (
	maxLimit = 50
	maxBurst = 100
)

// limits are steps, ordered by their number of nodes.
type limits []step

// limits parses the option.
func (c Config) limits() (limits, error) {
	var steps limits
	decoder := json.NewDecoder(strings.NewReader(c.CESRateLimits))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&steps); err != nil {
		return nil, cell.Invalid(limitsFlag, "must be a list as %s: %v", defaultConfig.CESRateLimits, explainJSON(err))
	}
	if _, err := decoder.Token(); err != io.EOF {
		return nil, cell.Invalid(limitsFlag, "must be one list as %s, and nothing behind it", defaultConfig.CESRateLimits)
	}
	if len(steps) == 0 {
		return nil, cell.Invalid(limitsFlag, "must have at least one step, as %s", defaultConfig.CESRateLimits)
	}
	for i, s := range steps {
		if s.Limit <= 0 || s.Burst < 1 {
			return nil, cell.Invalid(limitsFlag, "step %d: limit must be above 0 and burst at least 1: with less no slice is ever written", i+1)
		}
		if release.BoundedSliceRates.In(c.Release) {
			steps[i].Limit, steps[i].Burst = min(s.Limit, maxLimit), min(s.Burst, maxBurst)
		}
	}
	slices.SortStableFunc(steps, func(a, b step) int { return cmp.Compare(a.Nodes, b.Nodes) })
	return steps, nil
}

func explainJSON(err error) string {
	if err == io.EOF {
		return "it is empty"
	}
	return strings.TrimPrefix(fmt.Sprint(err), "json: ")
}

// at is the rate for a number of nodes: that of the last step that is reached, or the first.
func (l limits) at(nodes int) (rate.Limit, int) {
	now := l[0]
	for _, s := range l {
		if s.Nodes <= nodes {
			now = s
		}
	}
	return rate.Limit(now.Limit), now.Burst
}
