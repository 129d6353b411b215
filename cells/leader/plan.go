// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package leader

import (
	"time"

	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"github.com/skep-operator/skep/resources/k8s"
)

// sighting is the lease as seen last, and when this state of it was seen first. The
// times written in a lease are another machine's; only this clock counts.
type sighting struct {
	record resourcelock.LeaderElectionRecord
	raw    string // the same as text, to be compared
	at     k8s.Moment
	exists bool
}

// seen is the sighting after a look at the lease.
func (s sighting) seen(record resourcelock.LeaderElectionRecord, raw []byte, now k8s.Moment) sighting {
	if s.exists && s.raw == string(raw) {
		return s
	}
	return sighting{record: record, raw: string(raw), at: now, exists: true}
}

// missing is the sighting after a look that found no lease: it was deleted, and who
// held it does not know before it renews.
func (s sighting) missing(now k8s.Moment) sighting {
	if !s.exists {
		return s
	}
	return sighting{record: s.record, at: now}
}

// free reports whether the lease may be taken now.
func (s sighting) free(me string, now k8s.Moment) bool {
	switch {
	case !s.exists, s.record.HolderIdentity == "", s.record.HolderIdentity == me:
		return true
	}
	return now.Monotonic >= s.expiry()
}

// expiry is when a lease that is not renewed may be taken.
func (s sighting) expiry() time.Duration {
	return s.at.Monotonic + time.Duration(s.record.LeaseDurationSeconds)*time.Second
}

// settled is when nothing of a predecessor that did not release can reach the
// API server any more: it may write until its renew deadline, and a request may
// take its time.
func (s sighting) settled(me string, led int, c Config) time.Duration {
	if s.record.HolderIdentity == "" || s.mine(me, led) {
		return 0
	}
	return s.at.Monotonic + c.LeaderElectionRenewDeadline + c.requestTimeout()
}

// transitions is the count of the lease when this replica takes it.
func (s sighting) transitions(me string) int {
	first := !s.exists && s.record.HolderIdentity == ""
	if first || s.record.HolderIdentity == me {
		return s.record.LeaderTransitions
	}
	return s.record.LeaderTransitions + 1
}

// mine reports whether nobody else can have led since this replica did: the lease
// names it, with the count of transitions of its last term. A take whose answer
// was lost looks the same but for the count.
func (s sighting) mine(me string, led int) bool {
	return s.record.HolderIdentity == me && s.record.LeaderTransitions == led
}

// requestTimeout is how long a request for the lease may take.
func (c Config) requestTimeout() time.Duration {
	if c.LeaderElectionResourceLockTimeout > 0 {
		return c.LeaderElectionResourceLockTimeout
	}
	return max(time.Second, c.LeaderElectionRenewDeadline/2)
}

// poll is how long a replica that has failed to get the lease, or to renew it,
// waits before it tries again: no longer than a holder that has not failed.
func (c Config) poll() time.Duration { return min(pollPeriod, c.LeaderElectionRetryPeriod) }

// leaseSeconds is the lease duration as the lease has it: rounded up, so that
// nobody takes the lease before its holder has stopped.
func (c Config) leaseSeconds() int {
	return int((c.LeaderElectionLeaseDuration + time.Second - 1) / time.Second)
}
