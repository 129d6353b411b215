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

	"github.com/spf13/pflag"
	"golang.org/x/time/rate"

	"github.com/skep-operator/skep/runtime/cell"
)

// Config says how endpoints are gathered.
type Config struct {
	CESMaxCiliumEndpointsPerCES int           `flag:"ces-max-ciliumendpoints-per-ces"`
	CESSliceMode                string        `flag:"ces-slice-mode"`
	CESRateLimits               string        `flag:"ces-rate-limits"`
	CESCleanupGrace             time.Duration `flag:"ces-cleanup-grace"`

	// Options of the original that have no effect any more.
	CESWriteQPSLimit            float64  `flag:"ces-write-qps-limit"`
	CESWriteQPSBurst            int      `flag:"ces-write-qps-burst"`
	CESEnableDynamicRateLimit   bool     `flag:"ces-enable-dynamic-rate-limit"`
	CESDynamicRateLimitNodes    []string `flag:"ces-dynamic-rate-limit-nodes"`
	CESDynamicRateLimitQPSLimit []string `flag:"ces-dynamic-rate-limit-qps-limit"`
	CESDynamicRateLimitQPSBurst []string `flag:"ces-dynamic-rate-limit-qps-burst"`
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

// oldModes are other names of modes.
var oldModes = map[string]string{"cesSliceModeIdentity": modeIdentity, "cesSliceModeFCFS": modeFCFS}

// deprecated are options that have no effect.
var deprecated = []string{
	"ces-write-qps-limit", "ces-write-qps-burst", "ces-enable-dynamic-rate-limit",
	"ces-dynamic-rate-limit-nodes", "ces-dynamic-rate-limit-qps-limit", "ces-dynamic-rate-limit-qps-burst",
}

// Flags implements cell.Flagger.
func (c Config) Flags(fs *pflag.FlagSet) {
	fs.Int(maxFlag, c.CESMaxCiliumEndpointsPerCES, "How many endpoints a CiliumEndpointSlice has at most")
	fs.String(modeFlag, c.CESSliceMode, "Which endpoints are together in a CiliumEndpointSlice: identity for those of one identity, fcfs for any of a namespace, which makes fewer slices")
	fs.String(limitsFlag, c.CESRateLimits, "How many CiliumEndpointSlices are written in a second (limit) and at once (burst), by the number of nodes, as JSON; at most 50 and 100 hold")
	fs.Duration(cleanupFlag, c.CESCleanupGrace, "How long CiliumEndpointSlices that are not in use any more must be left alone before they are deleted, longer than it takes to restart all agents; 0 keeps them")
	fs.Float64("ces-write-qps-limit", c.CESWriteQPSLimit, "Has no effect")
	fs.Int("ces-write-qps-burst", c.CESWriteQPSBurst, "Has no effect")
	fs.Bool("ces-enable-dynamic-rate-limit", c.CESEnableDynamicRateLimit, "Has no effect")
	fs.StringSlice("ces-dynamic-rate-limit-nodes", c.CESDynamicRateLimitNodes, "Has no effect")
	fs.StringSlice("ces-dynamic-rate-limit-qps-limit", c.CESDynamicRateLimitQPSLimit, "Has no effect")
	fs.StringSlice("ces-dynamic-rate-limit-qps-burst", c.CESDynamicRateLimitQPSBurst, "Has no effect")
	for _, name := range deprecated {
		_ = fs.MarkDeprecated(name, "it has no effect; set --"+limitsFlag)
	}
}

// mode is the mode by its present name.
func (c Config) mode() string {
	if now, old := oldModes[c.CESSliceMode]; old {
		return now
	}
	return c.CESSliceMode
}

func (c Config) byIdentity() bool { return c.mode() == modeIdentity }

// Validate implements the check of config structs, for what holds with the feature
// switched off, too.
func (c Config) Validate() error {
	if c.CESCleanupGrace < 0 {
		return cell.Invalid(cleanupFlag, "must not be negative")
	}
	return nil
}

// validate checks what matters where slices are in use.
func validate(c Config) error {
	switch {
	case c.CESMaxCiliumEndpointsPerCES < 1:
		return cell.Invalid(maxFlag, "must be at least 1")
	case c.mode() != modeIdentity && c.mode() != modeFCFS:
		return cell.Invalid(modeFlag, "must be %s or %s", modeIdentity, modeFCFS)
	}
	_, err := c.limits()
	return err
}

// tellOldModes says when a mode goes by a name of old.
func tellOldModes(c Config, log *slog.Logger) {
	if now, old := oldModes[c.CESSliceMode]; old {
		log.Warn("this name of a mode is deprecated; use the present one", modeFlag, c.CESSliceMode, "present", now)
	}
}

// step is how many slices may be written from a number of nodes on.
type step struct {
	Nodes int     `json:"nodes"`
	Limit float64 `json:"limit"`
	Burst int     `json:"burst"`
}

// More than this does not hold, whatever is asked for.
const (
	maxLimit = 50
	maxBurst = 100
)

// limits are steps by their number of nodes.
type limits []step

// limits reads the option.
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
		if s.Limit <= 0 || s.Burst < 1 || s.Nodes < 0 {
			return nil, cell.Invalid(limitsFlag, "step %d: nodes must not be negative, limit must be above 0 and burst at least 1: with less no slice is ever written", i+1)
		}
		steps[i].Limit, steps[i].Burst = min(s.Limit, maxLimit), min(s.Burst, maxBurst)
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

// at is the rate with so many nodes: that of the last step that is reached, of the
// first if none is.
func (l limits) at(nodes int) (rate.Limit, int) {
	now := l[0]
	for _, s := range l {
		if s.Nodes <= nodes {
			now = s
		}
	}
	return rate.Limit(now.Limit), now.Burst
}
