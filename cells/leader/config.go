// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package leader

import (
	"time"

	"k8s.io/utils/ptr"

	"github.com/skep-operator/skep/runtime/cell"
)

// Config is the timing of the lease.
type Config struct {
	LeaderElectionLeaseDuration       time.Duration `flag:"leader-election-lease-duration" usage:"Time after the last renewal at which other replicas may acquire the lease; 1s to 24h, and longer than the renew deadline" min:"1s" max:"24h"`
	LeaderElectionRenewDeadline       time.Duration `flag:"leader-election-renew-deadline" usage:"Time after the last renewal at which the leader stops writing; longer than 1.2 retry periods"`
	LeaderElectionRetryPeriod         time.Duration `flag:"leader-election-retry-period" usage:"Interval between renewals of the lease; at least 10ms" min:"10ms"`
	LeaderElectionResourceLockTimeout time.Duration `flag:"leader-election-resource-lock-timeout" usage:"Timeout of a request for the lease, at least 100ms; 0 is half the renew deadline" min:"100ms" zero:"means half the renew deadline"`
}

const (
	leaseFlag    = "leader-election-lease-duration"
	deadlineFlag = "leader-election-renew-deadline"
	retryFlag    = "leader-election-retry-period"
)

// Validate implements the check of config structs.
func (c Config) Validate() error {
	switch {
	case c.LeaderElectionLeaseDuration <= c.LeaderElectionRenewDeadline:
		return cell.Invalid(leaseFlag, "must be more than --%s (%s)", deadlineFlag, c.LeaderElectionRenewDeadline)
	case c.LeaderElectionRenewDeadline <= c.LeaderElectionRetryPeriod*6/5:
		return cell.Invalid(deadlineFlag, "must be more than 1.2 times --%s (%s)", retryFlag, c.LeaderElectionRetryPeriod)
	}
	return nil
}

// maxWaitOut is the maximum wait for the expiry of a lease, in own lease durations.
const maxWaitOut = 10

// waitOut is the wait for the expiry of a lease with the given duration. Its holder may have other flags, so its duration
// counts, within bounds: a lease may be edited.
func (c Config) waitOut(seconds *int32) time.Duration {
	own := time.Duration(c.leaseSeconds()) * time.Second
	return min(max(own, time.Duration(ptr.Deref(seconds, 0))*time.Second), maxWaitOut*own)
}

// requestTimeout is the timeout of a request for the lease.
func (c Config) requestTimeout() time.Duration {
	if c.LeaderElectionResourceLockTimeout > 0 {
		return c.LeaderElectionResourceLockTimeout
	}
	return max(time.Second, c.LeaderElectionRenewDeadline/2)
}

// poll is the pause after a failed attempt to acquire or renew the lease: no longer than after a success.
func (c Config) poll() time.Duration { return min(pollPeriod, c.LeaderElectionRetryPeriod) }

// leaseSeconds is the lease duration in the lease: rounded up, so that no replica acquires it before its holder has stopped.
func (c Config) leaseSeconds() int32 {
	return int32((c.LeaderElectionLeaseDuration + time.Second - 1) / time.Second)
}
