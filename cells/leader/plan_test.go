// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package leader

import (
	"context"
	"github.com/skep-operator/skep/runtime/cell"
	"math"
	"strings"
	"sync"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/version"
	"k8s.io/utils/ptr"

	"github.com/skep-operator/skep/resources/leading"
)

// leaseBy is a lease of the fifth term.
func leaseBy(holder string) *coordinationv1.Lease {
	acquired := metav1.NewMicroTime(time.Unix(1, 0))
	return &coordinationv1.Lease{Spec: coordinationv1.LeaseSpec{
		HolderIdentity: &holder, LeaseDurationSeconds: ptr.To[int32](15), LeaseTransitions: ptr.To[int32](4), AcquireTime: &acquired, RenewTime: &acquired,
	}}
}

// releasedBy is what a replica leaves in the lease.
func released() *coordinationv1.Lease {
	l := leaseBy("me")
	if err := releaseLease(l, leading.WriteProgress{Complete: true}); err != nil {
		panic(err)
	}
	return l
}

func at(d time.Duration) leading.Moment { return leading.Moment{Monotonic: d} }

// seenBy is a lease that was seen first after a minute.
func seenBy(holder string) observedLease {
	return observedLease{}.observe(leaseBy(holder), at(time.Minute))
}

func TestALeaseIsFreeWhenItsStateHasStoodForItsDuration(t *testing.T) {
	lasting := func(seconds *int32) observedLease {
		l := leaseBy("other")
		l.Spec.LeaseDurationSeconds = seconds
		return observedLease{}.observe(l, at(time.Minute))
	}
	for name, c := range map[string]struct {
		seen observedLease
		now  time.Duration
		free bool
	}{
		"there is none":                {observedLease{}, time.Minute, true},
		"released":                     {observedLease{}.observe(released(), at(time.Minute)), time.Minute, true},
		"emptied":                      {seenBy(""), time.Minute, false},
		"emptied, and stood":           {seenBy(""), time.Minute + 15*time.Second, true},
		"our own, of before":           {seenBy("me"), time.Minute, true},
		"held":                         {seenBy("other"), time.Minute + 14999*time.Millisecond, false},
		"at the end of its duration":   {seenBy("other"), time.Minute + 15*time.Second, true},
		"the same state, seen later":   {seenBy("other").observe(leaseBy("other"), at(time.Hour)), time.Minute + 15*time.Second, true},
		"another state, seen later":    {seenBy("other").observe(leaseBy("third"), at(time.Hour)), time.Hour + time.Second, false},
		"its times are of no account":  {seenBy("other"), time.Minute, false},
		"deleted":                      {seenBy("other").observeMissing(at(time.Minute)), time.Minute, true},
		"for a longer time than ours":  {lasting(ptr.To[int32](60)), time.Minute + 59*time.Second, false},
		"and that is over":             {lasting(ptr.To[int32](60)), time.Minute + 60*time.Second, true},
		"for a shorter time than ours": {lasting(ptr.To[int32](1)), time.Minute + 14*time.Second, false},
		"for no time":                  {lasting(nil), time.Minute + 15*time.Second, true},
		"for ever":                     {lasting(ptr.To[int32](math.MaxInt32)), time.Minute + 149*time.Second, false},
		"ten times ours":               {lasting(ptr.To[int32](math.MaxInt32)), time.Minute + 150*time.Second, true},
	} {
		if got := c.seen.free("me", defaults, at(c.now)); got != c.free {
			t.Errorf("%s: free %v, want %v", name, got, c.free)
		}
	}
}

func TestAPredecessorThatDidNotReleaseIsWaitedOut(t *testing.T) {
	mine := &leaseBy("me").Spec
	for by, want := range map[string]time.Duration{"": time.Minute + 15*time.Second, "me": 0, "other": time.Minute + 15*time.Second} {
		if got := seenBy(by).safeAfter(mine, defaults); got != want {
			t.Errorf("held by %q: settled at %s, want %s", by, got, want)
		}
	}
	later, gone := at(time.Hour), observedLease{}.observe(released(), at(time.Minute))
	earlier := leaseBy("me").Spec
	earlier.LeaseTransitions = ptr.To[int32](3)
	for name, c := range map[string]struct {
		seen observedLease
		last *coordinationv1.LeaseSpec
		want time.Duration
	}{
		"a take whose answer was lost: another may have led before": {seenBy("me"), &earlier, time.Minute + 15*time.Second},
		"this replica has not led":                                  {seenBy("me"), nil, time.Minute + 15*time.Second},
		"released":                                                  {gone, mine, 0},
		"never a lease":                                             {observedLease{}.observeMissing(later), mine, 0},
		"deleted when it was free: it may have been taken since": {gone.observeMissing(later), mine, time.Hour + 15*time.Second},
		"deleted when it was held":                               {seenBy("other").observeMissing(later), mine, time.Hour + 15*time.Second},
		"still deleted, seen later":                              {seenBy("other").observeMissing(later).observeMissing(at(2 * time.Hour)), mine, time.Hour + 15*time.Second},
		"made again, by the holder":                              {seenBy("other").observeMissing(at(0)).observe(leaseBy("other"), later), mine, time.Hour + 15*time.Second},
		"made again and then given up":                           {seenBy("other").observeMissing(at(0)).observe(released(), later), mine, 0},
	} {
		if got := c.seen.safeAfter(c.last, defaults); got != c.want {
			t.Errorf("%s: settled at %s, want %s", name, got, c.want)
		}
	}
}

func TestAnotherHolderIsATransition(t *testing.T) {
	counting := func(n int32) observedLease {
		l := leaseBy("other")
		l.Spec.LeaseTransitions = &n
		return observedLease{}.observe(l, leading.Moment{})
	}
	for name, c := range map[string]struct {
		seen observedLease
		want int32
	}{
		"the first lease":      {observedLease{}, 0},
		"our own":              {seenBy("me"), 4},
		"another's":            {seenBy("other"), 5},
		"emptied":              {seenBy(""), 5},
		"another's, deleted":   {seenBy("other").observeMissing(leading.Moment{}), 5},
		"no count":             {observedLease{}.observe(&coordinationv1.Lease{}, leading.Moment{}), 1},
		"the greatest count":   {counting(math.MaxInt32), 0},
		"no count at all":      {counting(-1), 0},
		"the last but one":     {counting(math.MaxInt32 - 1), math.MaxInt32},
		"released":             {observedLease{}.observe(released(), leading.Moment{}), 5},
		"released and deleted": {observedLease{}.observe(released(), leading.Moment{}).observeMissing(leading.Moment{}), 5},
	} {
		if got := c.seen.transitions(&leaseBy("me").Spec); got != c.want {
			t.Errorf("%s: %d transitions, want %d", name, got, c.want)
		}
	}
}

// LEAD-10: a release counts only as it was written, by the holder that was seen before.
func TestOnlyTheReleaseOfThisTransitionCounts(t *testing.T) {
	edited := func(change func(*coordinationv1.Lease)) *coordinationv1.Lease {
		l := released()
		change(l)
		return l
	}
	for name, c := range map[string]struct {
		seen    observedLease
		release bool
	}{
		"as it was written":           {observedLease{}.observe(released(), at(0)), true},
		"after its holder":            {seenBy("other").observe(released(), at(0)), true},
		"seen again":                  {seenBy("other").observe(released(), at(0)).observe(released(), at(1)), true},
		"of another renewal":          {observedLease{}.observe(edited(func(l *coordinationv1.Lease) { l.Spec.RenewTime.Time = time.Unix(9, 0) }), at(0)), false},
		"without a renewal":           {observedLease{}.observe(edited(func(l *coordinationv1.Lease) { l.Spec.RenewTime = nil }), at(0)), false},
		"of another transition":       {observedLease{}.observe(edited(func(l *coordinationv1.Lease) { *l.Spec.LeaseTransitions = 5 }), at(0)), false},
		"with a holder":               {observedLease{}.observe(edited(func(l *coordinationv1.Lease) { l.Spec.HolderIdentity = ptr.To("other") }), at(0)), false},
		"without the annotation":      {observedLease{}.observe(edited(func(l *coordinationv1.Lease) { l.Annotations = nil }), at(0)), false},
		"restored, after a later one": {restored(), false},
		"restored, seen again":        {restored().observe(restored().lease, at(1)), false},
		"of another object":           {seenBy("other").observe(edited(func(l *coordinationv1.Lease) { l.UID = "new" }), at(0)), false},
	} {
		if got := c.seen.release != nil; got != c.release {
			t.Errorf("%s: a release %v, want %v", name, got, c.release)
		}
	}
}

// restored is the sighting of a released lease that was put back while another leads.
var restored = sync.OnceValue(func() observedLease {
	l := leaseBy("other")
	*l.Spec.LeaseTransitions++
	return observedLease{}.observe(l, at(0)).observe(released(), at(0))
})

func TestConfigIsChecked(t *testing.T) {
	for name, c := range map[string]struct {
		lease, renew, retry, timeout time.Duration
		flag                         string
	}{
		"of the contract":             {15 * time.Second, 10 * time.Second, 2 * time.Second, 0, ""},
		"no retry period":             {15 * time.Second, 10 * time.Second, 0, 0, "leader-election-retry-period"},
		"deadline within a retry":     {15 * time.Second, 2 * time.Second, 2 * time.Second, 0, "leader-election-renew-deadline"},
		"lease within the deadline":   {10 * time.Second, 10 * time.Second, 2 * time.Second, 0, "leader-election-lease-duration"},
		"lease of less than a second": {900 * time.Millisecond, 500 * time.Millisecond, 100 * time.Millisecond, 0, "leader-election-lease-duration"},
		"negative timeout":            {15 * time.Second, 10 * time.Second, 2 * time.Second, -1, "leader-election-resource-lock-timeout"},
		"timeout of nanoseconds":      {15 * time.Second, 10 * time.Second, 2 * time.Second, 5, "leader-election-resource-lock-timeout"},
		"retries without a pause":     {15 * time.Second, 10 * time.Second, 2, 0, "leader-election-retry-period"},
		"the shortest":                {time.Second, 13 * time.Millisecond, 10 * time.Millisecond, 100 * time.Millisecond, ""},
		"the longest":                 {24 * time.Hour, 10 * time.Second, 2 * time.Second, 0, ""},
		"more than a lease can say":   {math.MaxInt64, 10 * time.Second, 2 * time.Second, 0, "leader-election-lease-duration"},
	} {
		err := cell.ValidateConfig(Config{c.lease, c.renew, c.retry, c.timeout})
		if (err == nil) != (c.flag == "") || err != nil && !strings.Contains(err.Error(), c.flag) {
			t.Errorf("%s: %v, want an error about %q", name, err, c.flag)
		}
	}
}

// A lease that said less than it lasts could be taken from a holder that may
// still write.
func TestLeaseSecondsAreRoundedUp(t *testing.T) {
	for d, want := range map[time.Duration]int32{time.Second: 1, 1500 * time.Millisecond: 2, 15 * time.Second: 15} {
		if got := (Config{LeaderElectionLeaseDuration: d}).leaseSeconds(); got != want {
			t.Errorf("%s: %d seconds, want %d", d, got, want)
		}
	}
}

// LEAD-1.
func TestRequestsTakeHalfTheRenewDeadline(t *testing.T) {
	if got := (Config{LeaderElectionRenewDeadline: 10 * time.Second}).requestTimeout(); got != 5*time.Second {
		t.Errorf("%s", got)
	}
	if got := (Config{LeaderElectionRenewDeadline: 10 * time.Second, LeaderElectionResourceLockTimeout: 3 * time.Second}).requestTimeout(); got != 3*time.Second {
		t.Errorf("%s with a limit of its own", got)
	}
}

// serverOf is an API server of some version.
type serverOf string

func (s serverOf) Address() string { return "https://api" }
func (s serverOf) Version(context.Context) (*version.Info, error) {
	return &version.Info{GitVersion: string(s)}, nil
}

// LEAD-2. The elector has no client: what is refused does not campaign.
func TestAnOldAPIServerIsRefused(t *testing.T) {
	var stopped error
	e := &elector{params: params{Server: serverOf("v1.15.9"), Config: Config{LeaderElectionRenewDeadline: 10 * time.Second}, Stop: func(err error) { stopped = err }}}
	if err := e.run(t.Context()); err != nil {
		t.Error(err)
	}
	want := "k8s version (1.15.9) is not meeting the minimal requirement (1.16.0)"
	if stopped == nil || stopped.Error() != want {
		t.Errorf("the process stops with %v, want %q", stopped, want)
	}
	for _, v := range []string{"v1.16.0", "v1.36.3", "v1.27.3-gke.100", "v1.29.0-eks-a5ec690"} {
		e.Server = serverOf(v)
		if !e.awaitServer(t.Context()) {
			t.Errorf("%s is refused", v)
		}
	}
}
