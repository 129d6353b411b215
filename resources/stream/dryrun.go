// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package stream

import (
	"fmt"

	"github.com/skep-operator/skep/resources/dryrun"
	"github.com/skep-operator/skep/resources/stream/internal/conditions"
)

// load is what the streams are at, for a plan.
func (s *Streams) load() (load dryrun.Load) {
	for _, state := range s.States() {
		if !state.Running {
			continue
		}
		_, absent := state.Wrong[conditions.Resource]
		switch {
		case state.Synced:
		case absent && !s.source.plan.Objects().Defines(state.Name):
			load.Waiting = append(load.Waiting, "stream "+state.Name+": "+state.Wrong[conditions.Resource])
		default:
			load.Busy = append(load.Busy, "stream "+state.Name+": not synced")
		}
		for _, sub := range state.Subscribers {
			if n := sub.Pending + sub.Processing; n > 0 && state.Synced {
				load.Busy = append(load.Busy, fmt.Sprintf("stream %s, %s: %d to be delivered", state.Name, sub.Name, n))
			}
		}
	}
	return load
}
