// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package leader

import (
	"context"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/version"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"github.com/skep-operator/skep/resources/k8s"
)

func TestALeaseIsFreeWhenItsStateHasStoodForItsDuration(t *testing.T) {
	at := func(d time.Duration) k8s.Moment { return k8s.Moment{Monotonic: d} }
	held := func(by string) sighting {
		return sighting{}.seen(resourcelock.LeaderElectionRecord{HolderIdentity: by, LeaseDurationSeconds: 15}, []byte(by), at(time.Minute))
	}
	for name, c := range map[string]struct {
		seen sighting
		now  time.Duration
		free bool
	}{
		"there is none":               {sighting{}, time.Minute, true},
		"released":                    {held(""), time.Minute, true},
		"our own, of before":          {held("me"), time.Minute, true},
		"held":                        {held("other"), time.Minute + 14999*time.Millisecond, false},
		"at the end of its duration":  {held("other"), time.Minute + 15*time.Second, true},
		"the same state, seen later":  {held("other").seen(held("other").record, []byte("other"), at(time.Hour)), time.Minute + 15*time.Second, true},
		"another state, seen later":   {held("other").seen(held("third").record, []byte("third"), at(time.Hour)), time.Hour + time.Second, false},
		"its times are of no account": {held("other"), time.Minute, false},
		"deleted":                     {held("other").missing(at(time.Minute)), time.Minute, true},
	} {
		if got := c.seen.free("me", at(c.now)); got != c.free {
			t.Errorf("%s: free %v, want %v", name, got, c.free)
		}
	}
}

func TestAPredecessorThatDidNotReleaseIsWaitedOut(t *testing.T) {
	c := Config{LeaderElectionRenewDeadline: 10 * time.Second}
	seen := func(by string) sighting {
		return sighting{}.seen(resourcelock.LeaderElectionRecord{HolderIdentity: by}, []byte(by), k8s.Moment{Monotonic: time.Minute})
	}
	for by, want := range map[string]time.Duration{"": 0, "me": 0, "other": time.Minute + 15*time.Second} {
		if got := seen(by).settled("me", 0, c); got != want {
			t.Errorf("held by %q: settled at %s, want %s", by, got, want)
		}
	}
	// A take whose answer was lost: somebody may have led before it.
	if got, want := seen("me").settled("me", 3, c), time.Minute+15*time.Second; got != want {
		t.Errorf("held by this replica, of a term that it did not lead: settled at %s, want %s", got, want)
	}
	later := k8s.Moment{Monotonic: time.Hour}
	for name, c := range map[string]struct {
		seen sighting
		want time.Duration
	}{
		"never a lease":                {sighting{}.missing(later), 0},
		"deleted when it was free":     {seen("").missing(later), 0},
		"deleted when it was held":     {seen("other").missing(later), time.Hour + 15*time.Second},
		"still deleted, seen later":    {seen("other").missing(later).missing(k8s.Moment{Monotonic: 2 * time.Hour}), time.Hour + 15*time.Second},
		"made again, by the holder":    {seen("other").missing(k8s.Moment{}).seen(seen("other").record, []byte("other"), later), time.Hour + 15*time.Second},
		"made again and then given up": {seen("other").missing(k8s.Moment{}).seen(seen("").record, nil, later), 0},
	} {
		if got := c.seen.settled("me", 0, Config{LeaderElectionRenewDeadline: 10 * time.Second}); got != c.want {
			t.Errorf("%s: settled at %s, want %s", name, got, c.want)
		}
	}
}

func TestAnotherHolderIsATransition(t *testing.T) {
	held := func(by string) sighting {
		return sighting{}.seen(resourcelock.LeaderElectionRecord{HolderIdentity: by, LeaderTransitions: 4}, []byte(by), k8s.Moment{})
	}
	for name, c := range map[string]struct {
		seen sighting
		want int
	}{
		"the first lease":    {sighting{}, 0},
		"our own":            {held("me"), 4},
		"another's":          {held("other"), 5},
		"released":           {held(""), 5},
		"another's, deleted": {held("other").missing(k8s.Moment{}), 5},
		"released, deleted":  {held("").missing(k8s.Moment{}), 4},
	} {
		if got := c.seen.transitions("me"); got != c.want {
			t.Errorf("%s: %d transitions, want %d", name, got, c.want)
		}
	}
}

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
	} {
		err := Config{c.lease, c.renew, c.retry, c.timeout}.Validate()
		if (err == nil) != (c.flag == "") || err != nil && !strings.Contains(err.Error(), c.flag) {
			t.Errorf("%s: %v, want an error about %q", name, err, c.flag)
		}
	}
}

// A lease that said less than it lasts could be taken from a holder that may
// still write.
func TestLeaseSecondsAreRoundedUp(t *testing.T) {
	for d, want := range map[time.Duration]int{time.Second: 1, 1500 * time.Millisecond: 2, 15 * time.Second: 15} {
		if got := (Config{LeaderElectionLeaseDuration: d}).leaseSeconds(); got != want {
			t.Errorf("%s: %d seconds, want %d", d, got, want)
		}
	}
}

// L1.
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

// L2. The elector has no client: what is refused does not campaign.
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
