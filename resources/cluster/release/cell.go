// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package release

import (
	"context"
	"log/slog"
	"slices"
	"strings"

	"github.com/skep-operator/skep/runtime/cell"
	"github.com/skep-operator/skep/runtime/health"
	"github.com/skep-operator/skep/runtime/lifecycle"
)

// Cell offers the release that the cluster is configured for, as a [Configured].
var Cell = cell.Module("cluster.release", "Finds out which release of Cilium the cluster runs",
	cell.Config(Config{}),
	cell.Annotate(whyCommand),
	cell.Provide(Find, newSection),
	cell.Hook("log", newLog), // not before all is built: errors are the only line then
)

// Config says which release the cluster runs.
type Config struct {
	CiliumRelease string `flag:"cilium-release" usage:"Release of Cilium that the cluster runs, such as 1.19; empty to find it out"`
}

const optionName = "cilium-release"

// Validate implements the check of config structs.
func (c Config) Validate() error {
	if c.CiliumRelease == "" {
		return nil
	}
	switch _, exact, err := Parse(c.CiliumRelease); {
	case err != nil:
		return cell.Invalid(optionName, "must be one of %s, or empty: %v", strings.Join(names[:], ", "), err)
	case !exact:
		return cell.Questionable(optionName, "should be one of %s: another one counts as the nearest of them", strings.Join(names[:], ", "))
	}
	return nil
}

func newLog(c Configured, log *slog.Logger) lifecycle.Hook {
	return lifecycle.Funcs{OnStart: func(context.Context) error {
		log.Info("the cluster runs a release of Cilium", "release", c.Release.String(), "knownBy", c.KnownBy)
		return nil
	}}
}

type section struct {
	cell.Out

	Section health.Section `group:"status sections"`
}

// newSection has the status tell the release.
func newSection(c Configured) section {
	rows := [][]string{{c.Release.String(), c.KnownBy}}
	return section{Section: health.Section{
		Title: "Release of Cilium", Columns: []string{"RELEASE", "KNOWN BY"},
		Rows: func() [][]string { return slices.Clone(rows) },
	}}
}
