// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package leader

import (
	"time"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/skep-operator/skep/resources/k8s"
	"github.com/skep-operator/skep/runtime/cell"
)

// Cell elects one of several replicas, which then runs the term "leader".
var Cell = cell.Module("leader", "Elects the replica that acts, and hands over to another without a gap",
	cell.Config(Config{
		LeaderElectionLeaseDuration: 15 * time.Second,
		LeaderElectionRenewDeadline: 10 * time.Second,
		LeaderElectionRetryPeriod:   2 * time.Second,
	}),
	cell.EnabledBy(k8s.InUse),
	k8s.RBAC(k8s.Allow("create,get,update", schema.GroupResource{Group: "coordination.k8s.io", Resource: "leases"})),

	cell.Metrics(newMetrics),
	cell.ProvidePrivate(newElector),
	cell.Provide((*elector).election),
	cell.Job("elect", (*elector).job),
)

// Config is the timing of the lease.
type Config struct {
	LeaderElectionLeaseDuration       time.Duration
	LeaderElectionRenewDeadline       time.Duration
	LeaderElectionRetryPeriod         time.Duration
	LeaderElectionResourceLockTimeout time.Duration
}

// Flags implements cell.Flagger.
func (c Config) Flags(fs *pflag.FlagSet) {
	fs.Duration("leader-election-lease-duration", c.LeaderElectionLeaseDuration, "How long after its last renewal a lease is taken from its holder")
	fs.Duration("leader-election-renew-deadline", c.LeaderElectionRenewDeadline, "How long after its last renewal the holder stops writing")
	fs.Duration("leader-election-retry-period", c.LeaderElectionRetryPeriod, "Time between renewals")
	fs.Duration("leader-election-resource-lock-timeout", c.LeaderElectionResourceLockTimeout, "How long a request for the lease may take; 0 means half the renew deadline")
}

// Validate implements the check of config structs.
func (c Config) Validate() error {
	switch {
	case c.LeaderElectionRetryPeriod <= 0:
		return cell.Invalid("leader-election-retry-period", "must be greater than 0")
	case c.LeaderElectionRenewDeadline <= c.LeaderElectionRetryPeriod*6/5:
		return cell.Invalid("leader-election-renew-deadline", "must be more than 1.2 times --leader-election-retry-period (%s)", c.LeaderElectionRetryPeriod)
	case c.LeaderElectionLeaseDuration <= c.LeaderElectionRenewDeadline:
		return cell.Invalid("leader-election-lease-duration", "must be more than --leader-election-renew-deadline (%s)", c.LeaderElectionRenewDeadline)
	case c.LeaderElectionLeaseDuration < time.Second:
		return cell.Invalid("leader-election-lease-duration", "must be at least 1s; a lease counts in seconds")
	case c.LeaderElectionResourceLockTimeout < 0:
		return cell.Invalid("leader-election-resource-lock-timeout", "must not be negative")
	}
	return nil
}
