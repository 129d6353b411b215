// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package leader

import (
	"math"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/utils/ptr"

	"github.com/skep-operator/skep/resources/leading"
)

// observedLease is the lease as it was read last, and when this state was read first. The times in a lease are of another
// machine's clock; only the own clock counts.
type observedLease struct {
	lease   *coordinationv1.Lease // nil before the first read
	deleted bool                  // it does not exist any more
	at      leading.Moment
	release *release // by its last holder; nil if it is not released
}

// observe returns the state after a read of the lease.
func (s observedLease) observe(lease *coordinationv1.Lease, now leading.Moment) observedLease {
	next := observedLease{lease: lease, at: now, release: releaseOf(lease)}
	switch {
	case s.lease == nil:
	case !s.deleted && apiequality.Semantic.DeepEqual(s.lease.Spec, lease.Spec):
		next.at = s.at
		if s.lease.Annotations[writtenAnnotation] == lease.Annotations[writtenAnnotation] {
			next.release = s.release
		}
	case lease.UID != s.lease.UID || transitionsOf(lease) < transitionsOf(s.lease):
		next.release = nil // an older state was restored
	}
	return next
}

// observeMissing returns the state after a read that found no lease: it was deleted, which its holder notices when it
// renews.
func (s observedLease) observeMissing(now leading.Moment) observedLease {
	if s.lease == nil || s.deleted {
		return s
	}
	return observedLease{lease: s.lease, deleted: true, at: now}
}

// holder is the holder identity of the lease, "" for none.
func (s observedLease) holder() string {
	if s.lease == nil || s.deleted {
		return ""
	}
	return ptr.Deref(s.lease.Spec.HolderIdentity, "")
}

// free reports whether the lease may be acquired now.
func (s observedLease) free(me string, c Config, now leading.Moment) bool {
	if s.lease == nil || s.deleted || s.release != nil || s.holder() == me {
		return true
	}
	return now.Monotonic >= s.at.Monotonic+c.waitOut(s.lease.Spec.LeaseDurationSeconds)
}

// safeAfter is when no write of a predecessor that did not release the lease can reach the API server any more: it may
// write until its renew deadline, and then a request may take its timeout. last is the lease of this replica's last term,
// see isUninterrupted.
func (s observedLease) safeAfter(last *coordinationv1.LeaseSpec, c Config) time.Duration {
	if s.lease == nil || s.release != nil || s.isUninterrupted(last) {
		return 0
	}
	return s.at.Monotonic + c.LeaderElectionRenewDeadline + c.requestTimeout()
}

// transitions is the count of the lease when this replica acquires it.
func (s observedLease) transitions(last *coordinationv1.LeaseSpec) int32 {
	if s.lease == nil {
		return 0
	}
	before := transitionsOf(s.lease)
	switch {
	case s.isUninterrupted(last):
		return before
	case before < 0 || before == math.MaxInt32:
		return 0 // the API server rejects other counts
	}
	return before + 1
}

// isUninterrupted reports whether no other replica can have led since this one: the lease is that of its last term. An
// acquired lease whose response was lost names this replica, too, but has another count.
func (s observedLease) isUninterrupted(last *coordinationv1.LeaseSpec) bool {
	return last != nil && s.holder() == ptr.Deref(last.HolderIdentity, "") && sameTerm(*last, s.lease.Spec)
}

// sameTerm reports whether two states of the lease are of one term: an acquisition changes both fields.
func sameTerm(a, b coordinationv1.LeaseSpec) bool {
	return a.LeaseTransitions != nil && a.AcquireTime != nil &&
		apiequality.Semantic.DeepEqual(a.LeaseTransitions, b.LeaseTransitions) && a.AcquireTime.Equal(b.AcquireTime)
}

func transitionsOf(lease *coordinationv1.Lease) int32 {
	return ptr.Deref(lease.Spec.LeaseTransitions, 0)
}
