// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package endpointslice

import (
	"context"

	"github.com/skep-operator/skep/resources/k8s"
	"github.com/skep-operator/skep/resources/sweep"
	"github.com/skep-operator/skep/runtime/job"
)

// sweepsPerGrace is the number of sweeps in the grace of a slice.
const sweepsPerGrace = 24

// newCleanup makes the job that deletes the slices that remain when slices are
// switched off. Agents that were not restarted since still use them, so it takes its
// time: a slice that is deleted too early costs these agents all connections, one
// that stays costs memory. A slice is deleted if nothing has written it for so long.
func newCleanup(conf Config, client k8s.Client, p *k8s.Permissions, s sweep.Deps) (job.Job, error) {
	interval := conf.CESCleanupGrace / sweepsPerGrace
	run, err := sweep.Once(s, client, sweep.Cleanup{
		Resource: resource, Kind: "CiliumEndpointSlice", Why: "slices are switched off",
		Interval: interval, Grace: conf.CESCleanupGrace,
		Ready: func(ctx context.Context) bool { // a term begins without a request
			for job.Sleep(ctx, interval) {
				if cleanupAllowed(p) {
					return true
				}
				if p.Known() {
					return false
				}
			}
			return false
		},
	})
	return job.OneShot(run), err
}

// cleanupAllowed reports whether it is known that the role allows a clean-up. Roles of
// clusters that never had slices do not.
func cleanupAllowed(p *k8s.Permissions) bool {
	ref := k8s.Ref{Resource: resource}
	return p.Allows("list", ref) && p.Allows("delete", ref) &&
		p.Allows("get", k8s.Ref{Resource: definitions, Name: resource.GroupResource().String()})
}
