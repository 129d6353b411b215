// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package leader_test

import (
	"errors"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/skep-operator/skep/cells/leader"
	"github.com/skep-operator/skep/resources/cluster"
	"github.com/skep-operator/skep/resources/clustertest"
	"github.com/skep-operator/skep/resources/k8s"
	"github.com/skep-operator/skep/resources/leading"
	"github.com/skep-operator/skep/resources/operatortest"
	"github.com/skep-operator/skep/runtime/cell"
	"github.com/skep-operator/skep/runtime/cell/celltest"
)

func TestCell(t *testing.T) {
	duty := cell.Module("test.duty", "Does nothing")
	celltest.Check(t, leader.Cell,
		celltest.With(cluster.Cell(cluster.DefaultConfig), k8s.Cell, cell.Term("leader", duty)),
		celltest.Args("--k8s-api-server=http://127.0.0.1:1"),
		celltest.OffArgs("--enable-k8s=false"))
}

var leaseUpdates = clustertest.Match{Verbs: []string{"update"}, Resources: []string{"leases"}}

// LEAD-1.
func TestTheLeaseIsThatOfTheContract(t *testing.T) {
	s := newSite(t).unhurried()
	r := s.replica(t, "a", &events{}).start()
	operatortest.Eventually(t, "a term", r.leads)
	l := s.lease(t)
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	if !regexp.MustCompile("^" + regexp.QuoteMeta(host) + "-[bcdfghjklmnpqrstvwxz2456789]{10}$").MatchString(holder(l)) {
		t.Errorf("identity %q", holder(l))
	}
	if d := ptr.Deref(l.Spec.LeaseDurationSeconds, 0); d != 3600 {
		t.Errorf("leaseDurationSeconds %d, want 3600", d)
	}
	if l.Spec.AcquireTime == nil || l.Spec.RenewTime == nil || ptr.Deref(l.Spec.LeaseTransitions, -1) != 0 {
		t.Errorf("spec: %v", l.Spec)
	}
	operatortest.Eventually(t, "a renewal", func() bool { return s.lease(t).Spec.RenewTime.After(l.Spec.RenewTime.Time) })
	if now := s.lease(t); !now.Spec.AcquireTime.Equal(l.Spec.AcquireTime) {
		t.Errorf("a renewal changed acquireTime from %s to %s", l.Spec.AcquireTime, now.Spec.AcquireTime)
	}
	status := r.election.Status()
	if !status.Leading || status.Holder != status.Identity || status.Identity != holder(l) || status.Lease != s.Namespace+"/"+leaseName {
		t.Errorf("status: %+v", status)
	}
}

// LEAD-4 and LEAD-E4; the successor does not wait for a retry period.
func TestAStandbyTakesAReleasedLeaseAtItsNextLook(t *testing.T) {
	s, happened := newSite(t).unhurried(), &events{}
	a := s.replica(t, "a", happened).start()
	operatortest.Eventually(t, "a leads", a.leads)
	b := s.replica(t, "b", happened).start()
	operatortest.Eventually(t, "b stands by", func() bool { return b.election.Status().Holder == a.identity() })

	// The duty of a takes its time to stop: the lease is held and renewed.
	release := a.takesItsTime()
	stopped := a.stopping()
	before := renewals(a.leases(t))
	operatortest.Eventually(t, "two renewals while the term is left", func() bool { return renewals(a.leases(t)) >= before+2 })
	if l := s.lease(t); holder(l) != a.identity() {
		t.Errorf("a released the lease before its duty stopped; %q holds it", holder(l))
	}
	if b.leads() {
		t.Error("b leads while the duty of a runs")
	}
	release()
	<-stopped
	operatortest.Eventually(t, "b leads", b.leads)

	if got := happened.all(); !slices.Equal(got, []string{"a begins", "a ends", "b begins"}) {
		t.Errorf("events: %v", got)
	}
	updates := slices.DeleteFunc(a.leases(t), func(q clustertest.Request) bool { return q.Verb != "update" })
	released := updates[len(updates)-1].Answered
	looks := 0
	for _, q := range b.leases(t) {
		if q.Verb == "update" {
			break
		}
		if q.Verb == "get" && q.Received.After(released) {
			looks++
		}
	}
	if looks > 1 {
		t.Errorf("b looked %d times before it took the released lease:\n%s", looks, describe(b.leases(t)))
	}
	if l := s.lease(t); ptr.Deref(l.Spec.LeaseTransitions, 0) != 1 {
		t.Errorf("leaseTransitions %d after one handover", *l.Spec.LeaseTransitions)
	}
}

// LEAD-4.
func TestAReleasedLeaseNamesNobody(t *testing.T) {
	s := newSite(t).unhurried()
	a := s.replica(t, "a", &events{}).start()
	operatortest.Eventually(t, "a leads", a.leads)
	a.Stop()
	l := s.lease(t)
	if holder(l) != "" || ptr.Deref(l.Spec.LeaseDurationSeconds, 0) != 1 || ptr.Deref(l.Spec.LeaseTransitions, -1) != 0 {
		t.Errorf("spec: %v", l.Spec)
	}
	if !l.Spec.AcquireTime.Equal(l.Spec.RenewTime) {
		t.Errorf("acquireTime %s, renewTime %s", l.Spec.AcquireTime, l.Spec.RenewTime)
	}
}

// LEAD-9: the lease is held and renewed until a write without an answer cannot take
// effect any more.
func TestALeaseIsReleasedWhenWritesHaveSettled(t *testing.T) {
	s, happened := newSite(t).unhurried(), &events{}
	a := s.replica(t, "a", happened).start()
	operatortest.Eventually(t, "a leads", a.leads)
	b := s.replica(t, "b", happened).start()
	operatortest.Eventually(t, "b stands by", func() bool { return b.election.Status().Holder == a.identity() })
	a.proxy.Rule(t, clustertest.Rule{Match: clustertest.Match{Resources: []string{"configmaps"}}, LoseAnswer: &clustertest.LoseAnswer{Connection: true}})
	duty, _ := a.term()
	if err := duty.write(t, s); err == nil {
		t.Fatal("the answer was not lost")
	}
	a.Stop()
	operatortest.Eventually(t, "b leads", b.leads)
	lost := slices.DeleteFunc(a.proxy.Requests(t, 0), func(q clustertest.Request) bool { return q.Resource != "configmaps" })
	after := slices.DeleteFunc(a.leases(t), func(q clustertest.Request) bool {
		return q.Verb != "update" || q.Status != 200 || q.Received.Before(lost[0].Received)
	})
	// The last one is the release.
	if released := after[len(after)-1]; released.Received.Sub(lost[0].Received) < 5*time.Second || len(after) < 3 {
		t.Errorf("a write lost its answer at %s, and might take effect within 5s:\n%s", lost[0].Received.Format("05.000"), describe(after))
	}
	if got := happened.all(); !slices.Equal(got, []string{"a begins", "a ends", "b begins"}) {
		t.Errorf("events: %v", got)
	}
}

// A leader out of reach: its term ends at its own deadline, before another
// begins, and its process goes on.
func TestAPartitionedLeaderEndsItsTermBeforeAnotherBegins(t *testing.T) {
	s, happened := newSite(t), &events{}
	a := s.replica(t, "a", happened).start()
	operatortest.Eventually(t, "a leads", a.leads)
	first, _ := a.term()
	b := s.replica(t, "b", happened).start()
	operatortest.Eventually(t, "b stands by", func() bool { return b.election.Status().Holder == a.identity() })
	a.proxy.BlackHole(t)
	operatortest.Eventually(t, "b leads", b.leads)
	operatortest.Eventually(t, "a left its term", func() bool { return !a.leads() })

	if got := happened.all(); !slices.Equal(got, []string{"a begins", "a ends", "b begins"}) {
		t.Errorf("events: %v", got)
	}
	var renewed, stored time.Time
	for _, q := range a.leases(t) {
		if q.Status/100 == 2 && q.Verb != "get" {
			renewed, stored = q.Received, q.Answered
		}
	}
	var looked, seen time.Time // when b looked at the last renewal, and when it surely had seen it
	late := 0
	for _, q := range b.leases(t) {
		switch {
		case q.Verb == "update":
			if waited := q.Received.Sub(renewed); waited < leaseDuration {
				t.Errorf("b took the lease %s after it was renewed, within %s:\n%s", waited, leaseDuration, describe(b.leases(t)))
			}
			if late > 2 {
				t.Errorf("b looked %d times at a lease that it could take:\n%s", late, describe(b.leases(t)))
			}
			late = 0
		case looked.IsZero() && q.Received.After(stored):
			looked = q.Received
		case !looked.IsZero() && seen.IsZero():
			seen = q.Received
		case !seen.IsZero() && q.Received.Sub(seen) > leaseDuration:
			late++
		}
	}
	if err := first.write(t, s); !errors.Is(err, leading.ErrFenced) {
		t.Errorf("a write of the lost term: %v", err)
	}

	a.proxy.Heal(t)
	operatortest.Eventually(t, "a stands by", func() bool { return a.election.Status().Holder == b.identity() })
	b.Stop()
	operatortest.Eventually(t, "a leads again", a.leads)
	again, n := a.term()
	if n != 2 || again == first {
		t.Errorf("%d terms; the second is not built afresh", n)
	}
	if err := again.write(t, s); err != nil {
		t.Errorf("a write of the new term: %v", err)
	}
	if err := first.write(t, s); !errors.Is(err, leading.ErrFenced) {
		t.Errorf("a write of the lost term in the new one: %v", err)
	}
}

// overwrite gives the lease to another holder.
func (s *site) overwrite(t *testing.T) {
	t.Helper()
	operatortest.Eventually(t, "the stranger's write", func() bool {
		l := s.lease(t)
		l.Spec.HolderIdentity, l.Spec.RenewTime = ptr.To("stranger"), &metav1.MicroTime{Time: time.Now()}
		_, err := s.Core.CoordinationV1().Leases(s.Namespace).Update(t.Context(), l, metav1.UpdateOptions{})
		return err == nil
	})
}

// LEAD-E5. Neither the fence's deadline nor the end of the term is what stops the
// writes: one is far away, and the other hangs.
func TestALostLeaseStopsWritesWhenItIsNoticed(t *testing.T) {
	s := newSite(t).unhurried()
	a := s.replica(t, "a", &events{}).start()
	operatortest.Eventually(t, "a leads", a.leads)
	first, _ := a.term()
	defer a.takesItsTime()()
	s.overwrite(t)
	operatortest.Eventually(t, "writes are fenced", func() bool { return errors.Is(first.write(t, s), leading.ErrFenced) })
	if !a.leads() || strings.Contains(a.Log().String(), "leaving the term failed") {
		t.Error("the term is over, and has stopped the writes: that is too late")
	}
}

// LEAD-E5, but the process goes on.
func TestALeaseTakenByAStrangerEndsTheTerm(t *testing.T) {
	s := newSite(t)
	a := s.replica(t, "a", &events{}).start()
	operatortest.Eventually(t, "a leads", a.leads)
	s.overwrite(t)
	operatortest.Eventually(t, "a left its term", func() bool { return !a.leads() })
	if l := s.lease(t); holder(l) != "stranger" {
		t.Errorf("%q holds the lease: a released what was not its own", holder(l))
	}
	operatortest.Eventually(t, "the stranger's lease runs out and a leads again", a.leads)
	if l := s.lease(t); ptr.Deref(l.Spec.LeaseTransitions, 0) != 1 {
		t.Errorf("leaseTransitions %d, want 1", *l.Spec.LeaseTransitions)
	}
}

// LEAD-8: who leaves before its predecessor is waited out does not say that the lease is
// free, or a third one would not wait.
func TestALeaseIsNotReleasedBeforeThePredecessorIsWaitedOut(t *testing.T) {
	s := newSite(t)
	s.requestTimeout = time.Minute // what the predecessor sent may take that long
	happened := &events{}
	a := s.replica(t, "a", happened).start()
	operatortest.Eventually(t, "a leads", a.leads)
	s.overwrite(t)
	operatortest.Eventually(t, "a left its term", func() bool { return !a.leads() })
	operatortest.Eventually(t, "a has the lease again", func() bool { return holder(s.lease(t)) == a.identity() })
	a.Stop()
	if l := s.lease(t); holder(l) != a.identity() {
		t.Errorf("%q holds the lease", holder(l))
	}
	if got := happened.all(); !slices.Equal(got, []string{"a begins", "a ends"}) {
		t.Errorf("a was stopped too late to show anything: %v", got)
	}
}

// LEAD-8: the lease may be lost while the term is left.
func TestALeaseThatRanOutWhileTheTermWasLeftIsNotReleased(t *testing.T) {
	s := newSite(t)
	a := s.replica(t, "a", &events{}).start()
	operatortest.Eventually(t, "a leads", a.leads)
	first, _ := a.term()
	release := a.takesItsTime()
	stopped := a.stopping()
	failing := a.proxy.Answer(t, 500, leaseUpdates)
	operatortest.Eventually(t, "writes are fenced", func() bool { return errors.Is(first.write(t, s), leading.ErrFenced) })
	failing.Remove(t)
	release()
	<-stopped
	if l := s.lease(t); holder(l) != a.identity() {
		t.Errorf("%q holds the lease: the next leader would not wait for what is under way", holder(l))
	}
}

func TestADeletedLeaseEndsTheTerm(t *testing.T) {
	s := newSite(t).unhurried()
	a := s.replica(t, "a", &events{}).start()
	operatortest.Eventually(t, "a leads", a.leads)
	if err := s.Core.CoordinationV1().Leases(s.Namespace).Delete(t.Context(), leaseName, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	operatortest.Eventually(t, "a leads again, in another term", func() bool { d, n := a.term(); return d != nil && n == 2 })
	if l := s.lease(t); holder(l) != a.identity() {
		t.Errorf("%q holds the new lease", holder(l))
	}
}

// LEAD-8: the holder of a lease that was deleted goes on until it renews.
func TestTheHolderOfADeletedLeaseIsWaitedOut(t *testing.T) {
	s, happened := newSite(t), &events{}
	a := s.replica(t, "a", happened).start()
	operatortest.Eventually(t, "a leads", a.leads)
	b := s.replica(t, "b", happened).start()
	operatortest.Eventually(t, "b stands by", func() bool { return b.election.Status().Holder == a.identity() })
	a.proxy.Answer(t, 500, leaseUpdates)
	if err := s.Core.CoordinationV1().Leases(s.Namespace).Delete(t.Context(), leaseName, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	operatortest.Eventually(t, "b leads", b.leads)
	if got := happened.all(); !slices.Equal(got, []string{"a begins", "a ends", "b begins"}) {
		t.Errorf("events: %v", got)
	}
	if l := s.lease(t); holder(l) != b.identity() || ptr.Deref(l.Spec.LeaseTransitions, 0) != 1 {
		t.Errorf("the new lease: %v", l.Spec)
	}
}

// A renewal that arrived although its answer was lost makes the next one
// conflict.
func TestARenewalWhoseAnswerWasLostIsOurOwn(t *testing.T) {
	s := newSite(t).unhurried()
	a := s.replica(t, "a", &events{}).start()
	operatortest.Eventually(t, "a leads", a.leads)
	lost := a.proxy.Rule(t, clustertest.Rule{Match: leaseUpdates, Times: 1, LoseAnswer: &clustertest.LoseAnswer{Connection: true}})
	operatortest.Eventually(t, "a lost answer", func() bool { return lost.Hits(t) == 1 })
	conflicted := func() bool {
		return slices.ContainsFunc(a.leases(t), func(q clustertest.Request) bool { return q.Status == 409 })
	}
	operatortest.Eventually(t, "the conflict", conflicted)
	n := renewals(a.leases(t))
	operatortest.Eventually(t, "three more renewals", func() bool { return renewals(a.leases(t)) >= n+3 })
	if d, terms := a.term(); d == nil || terms != 1 {
		t.Errorf("%d terms, running: %v; want the first to go on", terms, d != nil)
	}
}

func TestAReleaseWhoseRenewalIsUnderWayStillReleases(t *testing.T) {
	s := newSite(t).unhurried()
	a := s.replica(t, "a", &events{}).start()
	operatortest.Eventually(t, "a leads", a.leads)
	// The answer of a renewal never comes, and the term ends.
	held := a.proxy.Rule(t, clustertest.Rule{Match: leaseUpdates, Times: 1, LoseAnswer: &clustertest.LoseAnswer{}})
	operatortest.Eventually(t, "a lost answer", func() bool { return held.Hits(t) == 1 })
	a.Stop()
	if l := s.lease(t); holder(l) != "" {
		t.Errorf("%q holds the lease after a stopped", holder(l))
	}
}

// #32846: an operator that restarts because the API server is slow.
func TestASlowAPIServerCostsNoTerm(t *testing.T) {
	s := newSite(t)
	s.leaseDuration, s.renewDeadline = 5*leaseDuration, 5*renewDeadline // longer than a busy machine may take besides
	a := s.replica(t, "a", &events{}).start()
	operatortest.Eventually(t, "a leads", a.leads)
	a.proxy.Delay(t, 500*time.Millisecond, 500*time.Millisecond)
	a.proxy.Rule(t, clustertest.Rule{Match: leaseUpdates, Delay: &clustertest.Delay{For: time.Second}})
	n := renewals(a.leases(t))
	operatortest.Eventually(t, "five slow renewals", func() bool { return renewals(a.leases(t)) >= n+5 })
	if d, terms := a.term(); d == nil || terms != 1 {
		t.Errorf("%d terms, running: %v; want the first to go on\n%s", terms, d != nil, describe(a.leases(t)))
	}
}

func TestServerErrorsShorterThanTheDeadlineCostNoTerm(t *testing.T) {
	s := newSite(t).unhurried()
	a := s.replica(t, "a", &events{}).start()
	operatortest.Eventually(t, "a leads", a.leads)
	errorsOf := a.proxy.Rule(t, clustertest.Rule{Match: leaseUpdates, Times: 3, Status: &clustertest.Status{Code: 500}})
	operatortest.Eventually(t, "three failures", func() bool { return errorsOf.Hits(t) == 3 })
	n := renewals(a.leases(t))
	operatortest.Eventually(t, "two more renewals", func() bool { return renewals(a.leases(t)) >= n+2 })
	if d, terms := a.term(); d == nil || terms != 1 {
		t.Errorf("%d terms, running: %v; want the first to go on", terms, d != nil)
	}
}

// The stock role allows create, get and update.
func TestAStandbyOnlyLooks(t *testing.T) {
	s := newSite(t).unhurried()
	a := s.replica(t, "a", &events{}).start()
	operatortest.Eventually(t, "a leads", a.leads)
	b := s.replica(t, "b", &events{}).start()
	operatortest.Eventually(t, "ten looks", func() bool { return count(b.leases(t), "get") >= 10 })
	seen := b.leases(t)
	if count(seen, "get") != len(seen) {
		t.Errorf("a standby does more than look:\n%s", describe(seen))
	}
	for _, q := range append(a.leases(t), seen...) {
		if !slices.Contains([]string{"get", "create", "update"}, q.Verb) {
			t.Errorf("%s is not allowed by the stock role", q.Verb)
		}
		if q.UserAgent != "skep/unknown (leader)" {
			t.Errorf("User-Agent %q", q.UserAgent)
		}
	}
	least, last := time.Hour, time.Time{}
	for _, q := range b.proxy.Answered(t, 0) {
		if q.Resource == "leases" {
			if !last.IsZero() {
				least = min(least, q.Received.Sub(last))
			}
			last = q.Answered
		}
	}
	if least >= retryPeriod {
		t.Errorf("the standby waits %s between two looks, want less than the %s between two renewals", least, retryPeriod)
	}
	if b.leads() {
		t.Error("two lead")
	}
}

func TestAnAPIServerThatIsAwayIsWaitedFor(t *testing.T) {
	s := newSite(t)
	a := s.replica(t, "a", &events{}, clustertest.Link{Refuse: true}).start()
	_, err := s.Core.CoordinationV1().Leases(s.Namespace).Get(t.Context(), leaseName, metav1.GetOptions{})
	if !apierrors.IsNotFound(err) {
		t.Fatalf("a lease: %v", err)
	}
	a.proxy.Heal(t)
	operatortest.Eventually(t, "a leads", a.leads)
}
