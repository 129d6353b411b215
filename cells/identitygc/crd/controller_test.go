// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package crd

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/skep-operator/skep/resources/identitygc"
	"github.com/skep-operator/skep/resources/stream/ciliumio"
	"github.com/skep-operator/skep/resources/stream/slim"
	"github.com/skep-operator/skep/runtime/metrics"
)

// inBubble runs a test with an operator that starts a minute after the cluster.
func inBubble(t *testing.T, test func(r *rig)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.identity("999") // something is always in use
		r.endpoint("always", 999)
		time.Sleep(time.Minute)
		test(r)
		r.stop()
	})
}

// IDGC-E1 of docs/wire/identitygc.md.
func TestUsedIsKept(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.identity("1000")
		r.endpoint("web", 1000)
		r.start()
		r.at(3 * time.Hour)
		r.happened()
		if text, there := r.text("1000"); !there || text != "" {
			t.Errorf("it is there: %t, marked %q", there, text)
		}
	})
}

// IDGC-E2; IDGC-5 to IDGC-8: the format of the mark, too.
func TestMarkedAndDeleted(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.identity("1001")
		r.start()
		r.at(20 * time.Minute)
		r.happened("17m0s mark 1001")
		if text, _ := r.text("1001"); text != r.began.Add(17*time.Minute).Format("2006-01-02T15:04:05.999999999Z07:00") {
			t.Errorf("the mark is %q", text)
		}
		if n := testutil.ToFloat64(r.marks.Marked); n != 0 { // the look marked it
			t.Errorf("%v are marked", n)
		}
		r.at(40 * time.Minute)
		if n := testutil.ToFloat64(r.marks.Marked); n != 1 {
			t.Errorf("%v are marked", n)
		}
		r.at(3 * time.Hour)
		r.happened("49m0s delete 1001")
		r.stop()
		if n := testutil.ToFloat64(r.marks.Marked); n != 0 {
			t.Errorf("%v are marked after the term", n)
		}
	})
}

// IDGC-E16; IDGC-20: one that waits for a finalizer of others is deleted once and
// counted once, also after a restart, and its mark stays as it is.
func TestTerminating(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.held = true
		r.identity("1001")
		r.start()
		r.at(6 * time.Hour)
		r.happened("17m0s mark 1001", "49m0s delete 1001")
		if n := testutil.ToFloat64(r.metrics.Entries.WithLabelValues("deleted", identitygc.InCRD)); n != 0 {
			t.Errorf("the last run has deleted %v", n)
		}
		r.stop()
		r.start()
		r.at(9 * time.Hour)
		r.endpoint("late", 1001)
		r.at(12 * time.Hour)
		r.happened()
	})
}

// Number 16 of the contract's identity-gc.md, "both"; IDGC-E3; IDGC-9.
func TestUsedAgain(t *testing.T) {
	for name, use := range map[string]func(*rig){
		"endpoint": func(r *rig) { r.endpoint("web", 1001) },
		"slice":    func(r *rig) { r.cluster.EnableCiliumEndpointSlice = true; r.slice("s", 7, 1001) },
		"pod":      func(r *rig) { r.assigned.set("web", 1001) },
		"both":     func(r *rig) { r.endpoint("web", 1001) },
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(r *rig) {
				r.cluster.EnableCiliumEndpointSlice = name == "slice"
				r.cluster.OperatorManagesIdentities = name == "pod"
				if name == "both" {
					r.cluster.IdentityManagementMode = "both"
				}
				r.identity("1001")
				r.start()
				r.at(20 * time.Minute)
				r.happened("17m0s mark 1001")
				use(r)
				r.at(3 * time.Hour)
				r.happened("20m0s unmark 1001") // at once
			})
		})
	}
}

// Number 17 of the contract's identity-gc.md: an agent that takes an identity into use takes its mark off, so that there is nothing to write.
func TestAgentUsesAgain(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.identity("1001")
		r.start()
		r.at(20 * time.Minute)
		r.happened("17m0s mark 1001")
		r.setMark("1001", "")
		r.endpoint("web", 1001)
		r.at(3 * time.Hour)
		r.happened()
	})
}

// IDGC-9: a use between two looks counts, though no look sees it.
func TestUsedBetweenLooks(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.identity("1001")
		r.start()
		r.at(40 * time.Minute)
		r.endpoint("job", 1001)
		r.at(41 * time.Minute)
		r.endpoints.Delete(slim.Key{Name: "job"})
		r.at(3 * time.Hour)
		// Looks at 49 and 65: unused for an interval, marked; deleted from 95 on.
		r.happened("17m0s mark 1001", "40m0s unmark 1001", "1h5m0s mark 1001", "1h37m0s delete 1001")
	})
}

// IDGC-E4; IDGC-12.
func TestAgentTakesTheMarkOff(t *testing.T) {
	inBubble(t, func(r *rig) {
		for _, name := range []string{"1001", "1002", "1003"} {
			r.identity(name)
		}
		for n := range 3 {
			r.endpoint(fmt.Sprint("more-", n), 999)
			r.identity(fmt.Sprint(2000 + n))
		}
		r.before = func(what string) {
			if what == "delete 1002" {
				r.before = nil
				r.setMark("1002", "") // the delete is on its way
			}
		}
		r.start()
		r.at(50 * time.Minute)
		var deletes []string
		for _, note := range r.notes {
			if strings.Contains(note, "delete") {
				deletes = append(deletes, note)
			}
		}
		if len(deletes) != 6 || !strings.Contains(strings.Join(deletes, "\n"), "49m0s delete 1002: Conflict") {
			t.Errorf("deletes: %v", deletes)
		}
		if _, there := r.text("1002"); !there {
			t.Error("it is gone")
		}
		if d := r.degraded(); d != "" {
			t.Errorf("it counts as a failure: %s", d)
		}
		r.stop()
		if n := r.warnings("identity=1002"); n != 1 {
			t.Errorf("%d warnings:\n%s", n, r.log.String())
		}
	})
}

// IDGC-E5.
func TestMadeAnew(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.identity("1001")
		r.start()
		r.at(40 * time.Minute)
		r.happened("17m0s mark 1001")
		r.identities.Delete(slim.Key{Name: "1001"})
		r.identity("1001") // looks at 49 and 65 see it
		r.at(3 * time.Hour)
		r.happened("1h5m0s mark 1001", "1h37m0s delete 1001")
	})
}

// IDGC-E5: the stream does not show the new one yet.
func TestMadeAnewUnseen(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.identity("1001")
		r.before = func(what string) {
			if what == "delete 1001" {
				r.before = nil
				r.identities.Delete(slim.Key{Name: "1001"})
				r.identity("1001")
			}
		}
		r.start()
		r.at(time.Hour)
		r.happened("17m0s mark 1001", "49m0s delete 1001: Conflict")
	})
}

// IDGC-E6.
func TestUsedBySlice(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.cluster.EnableCiliumEndpointSlice = true
		r.identity("1002")
		r.slice("s", 1002)
		r.start()
		r.at(3 * time.Hour)
		r.happened()
	})
}

// Number 19 of the contract's identity-gc.md; IDGC-4: where there are slices and no endpoints, endpoints are not read; in 1.20 also without a
// kvstore.
func TestSlicesAlone(t *testing.T) {
	for _, kvstore := range []string{"etcd", ""} {
		inBubble(t, func(r *rig) {
			r.cluster.KVStore, r.cluster.DisableEndpointCRD, r.cluster.EnableCiliumEndpointSlice = kvstore, true, true
			r.cluster.IdentityAllocationMode = "crd"
			r.identity("1002")
			r.slice("s", 1002, 999)
			r.identity("1001")
			r.endpoint("unheard", 1001)
			r.start()
			r.at(50 * time.Minute)
			r.happened("17m0s mark 1001", "49m0s delete 1001")
			if n := r.endpoints.State().Users; n != 0 {
				t.Errorf("%d users of CiliumEndpoints", n)
			}
		})
	}
}

// IDGC-E7; IDGC-11: no stretch of a minute has more deletes than the limit.
func TestRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		const garbage = 10_000
		for n := range garbage {
			r.marked(fmt.Sprint(10_000+n), time.Hour)
			r.identity(fmt.Sprint(30_000 + n))
			r.endpoint(fmt.Sprint("web-", n), int64(30_000+n))
		}
		r.pause = 150 * time.Millisecond // of each request: one after the other would take 25 minutes
		var times []time.Time
		r.before = func(string) { times = append(times, time.Now()) }
		r.start()
		r.at(16*time.Minute + 4*time.Minute + time.Second)
		if len(times) != garbage {
			t.Fatalf("%d deletes in four minutes", len(times))
		}
		for i := range times[:garbage-2500] {
			if times[i+2500].Sub(times[i]) < time.Minute {
				t.Fatalf("2501 deletes within %s", times[i+2500].Sub(times[i]))
			}
		}
		r.stop()
	})
}

// IDGC-E8: the mark outlives the process.
func TestRestart(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.identity("1001")
		r.start()
		r.at(35 * time.Minute)
		r.stop()
		r.at(36 * time.Minute)
		r.start()
		r.at(3 * time.Hour)
		r.happened("17m0s mark 1001", "52m0s delete 1001")
	})
}

// IDGC-E8: a mark of long ago is no reason for haste. Neither is one that was
// left by a clock that is ahead, nor one that says nothing.
func TestOldMarks(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.marked("1001", 48*time.Hour)
		r.marked("1002", -48*time.Hour)
		r.identity("1003")
		r.setMark("1003", "yesterday")
		r.share = 1
		r.start()
		r.at(time.Hour)
		r.t.Log(r.notes)
		got := strings.Join(r.notes, ", ")
		for _, want := range []string{"17m0s mark 1002", "17m0s mark 1003", "17m0s delete 1001", "49m0s delete 1002", "49m0s delete 1003"} {
			if !strings.Contains(got, want) {
				t.Errorf("%s is not among %s", want, got)
			}
		}
		if len(r.notes) != 5 {
			t.Errorf("writes: %s", got)
		}
	})
}

// IDGC-E9.
func TestDeleteOfWhatIsGone(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.marked("1001", time.Hour)
		r.marked("1002", time.Hour)
		r.fails["delete 1001"] = apierrors.NewNotFound(group, "1001")
		r.start()
		r.at(18 * time.Minute)
		if n := len(r.notes); n != 2 {
			t.Errorf("writes: %v", r.notes)
		}
		r.counts(2, 0, 1, 2)
		if d := r.degraded(); d != "" {
			t.Error(d)
		}
	})
}

// counts checks runs that succeeded and failed, and what the last one left and
// deleted.
func (r *rig) counts(succeeded, failed, alive, deleted float64) {
	r.t.Helper()
	for name, v := range map[string][2]float64{
		"successes": {testutil.ToFloat64(r.metrics.Runs.WithLabelValues("success", "crd")), succeeded},
		"failures":  {testutil.ToFloat64(r.metrics.Runs.WithLabelValues("fail", "crd")), failed},
		"alive":     {testutil.ToFloat64(r.metrics.Entries.WithLabelValues("alive", "crd")), alive},
		"deleted":   {testutil.ToFloat64(r.metrics.Entries.WithLabelValues("deleted", "crd")), deleted},
	} {
		if v[0] != v[1] {
			r.t.Errorf("%v %s, want %v", v[0], name, v[1])
		}
	}
}

// IDGC-E10; IDGC-13.
func TestDeleteFails(t *testing.T) {
	inBubble(t, func(r *rig) {
		for n := range 100 {
			r.marked(fmt.Sprint(1000+n), time.Hour)
			r.identity(fmt.Sprint(2000 + n))
			r.endpoint(fmt.Sprint("web-", n), int64(2000+n))
		}
		r.fails["delete 1050"] = apierrors.NewInternalError(errors.New("whoops"))
		r.start()
		r.at(17*time.Minute + 3*time.Second)
		if n := len(r.notes); n != 100 {
			t.Errorf("%d deletes", n)
		}
		r.counts(1, 1, 102, 99)
		if d := r.degraded(); !strings.Contains(d, "deleting CiliumIdentity 1050") || !strings.Contains(d, "whoops") {
			t.Errorf("it is degraded: %s", d)
		}
		r.mu.Lock()
		r.fails = nil
		r.mu.Unlock()
		r.at(18 * time.Minute)
		r.counts(2, 1, 101, 1)
		if d := r.degraded(); d != "" {
			t.Error(d)
		}
	})
}

// IDGC-E13.
func TestCounts(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.identity("1000")
		r.endpoint("web", 1000)
		r.marked("1001", time.Hour)
		r.start()
		r.at(17*time.Minute - time.Second)
		r.counts(1, 0, 3, 0)
		r.at(18 * time.Minute)
		r.counts(2, 0, 2, 1)
	})
}

// IDGC-E15: nothing is remembered of identities that are gone.
func TestForgets(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.identity("1001")
		r.start()
		r.at(20 * time.Minute)
		i, _ := r.server.get("1001")
		r.at(40 * time.Minute)
		if r.collector.unusedSince(idOf(i)).IsZero() || len(r.collector.history) != 1 {
			t.Error("it is not remembered")
		}
		r.identities.Delete(i.Key())
		r.at(50 * time.Minute)
		if !r.collector.unusedSince(idOf(i)).IsZero() || len(r.collector.history) != 0 {
			t.Error("it is remembered")
		}
	})
}

// IDGC-3: names that are no numbers, and numbers of other clusters.
func TestOthersAreLeftAlone(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.cluster.ClusterID, r.cluster.ClusterName = 1, "one"
		r.identities.Delete(slim.Key{Name: "999"})
		for _, name := range []string{"foo", "0", "070000", "255", "1000", "131072"} {
			r.marked(name, 48*time.Hour)
		}
		r.identity("70000")
		r.share = 1
		r.start()
		r.at(2 * time.Hour)
		r.happened("17m0s mark 70000", "49m0s delete 70000")
		r.stop()
		if n := r.warnings("no identity numbers"); n != 1 || strings.Count(r.log.String(), "numbers of other clusters") != 1 {
			t.Errorf("the log is\n%s", r.log.String())
		}
	})
}

// IDGC-14: of two with the same labels, the unused one is deleted.
func TestDuplicates(t *testing.T) {
	inBubble(t, func(r *rig) {
		for _, name := range []string{"300", "400"} {
			i := &ciliumio.Identity{SecurityLabels: slim.MakeLabels(map[string]string{"k8s:app": "web"})}
			i.Name, i.UID = name, slim.ParseUID(name)
			r.identities.Upsert(i)
		}
		r.endpoint("web", 400)
		r.start()
		r.at(time.Hour)
		r.happened("17m0s mark 300", "49m0s delete 300")
	})
}

// IDGC-16: an unused identity whose mark an agent removes is kept.
func TestContested(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.identity("1001")
		r.start()
		for at := 20 * time.Minute; at < 5*time.Hour; at += 5 * time.Minute {
			r.at(at)
			if text, _ := r.text("1001"); text != "" {
				r.setMark("1001", "")
			}
			contested := testutil.ToFloat64(r.marks.Contested)
			if at < 95*time.Minute && contested != 0 || at > 100*time.Minute && contested != 1 {
				t.Errorf("%v after %s", contested, at)
			}
		}
		for _, note := range r.notes {
			if !strings.Contains(note, "mark") {
				t.Error(note)
			}
		}
		r.endpoint("web", 1001) // so it was in use after all
		r.at(6 * time.Hour)
		if n := testutil.ToFloat64(r.marks.Contested); n != 0 {
			t.Errorf("%v", n)
		}
		r.stop()
		if n := r.warnings("an agent keeps removing the mark"); n != 1 {
			t.Errorf("%d warnings:\n%s", n, r.log.String())
		}
	})
}

// IDGC-10: a stream that does not get up to date keeps everything, and one that
// does shows what was missing.
func TestStalledStream(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.marked("1001", time.Hour)
		r.marked("1002", time.Hour)
		confirms := 0
		r.endpoints.confirm = func(context.Context) error {
			if confirms++; confirms < 3 {
				return errors.New("no answer")
			}
			r.endpoint("late", 1001)
			return nil
		}
		r.start()
		r.at(17 * time.Minute)
		r.happened()
		if d := r.degraded(); !strings.Contains(d, "not sure that the view is up to date") {
			t.Errorf("degraded: %s", d)
		}
		r.at(18 * time.Minute)
		got := strings.Join(r.notes, ", ")
		if !strings.Contains(got, "17m3s delete 1002") || !strings.Contains(got, "17m3s unmark 1001") || len(r.notes) != 2 {
			t.Errorf("writes: %s", got)
		}
	})
}

// IDGC-10: a sweep of many minutes gets the views up to date again and again, and
// looks before each delete.
func TestLongSweep(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.config.IdentityGCRateLimit, r.share = 1, 1
		for n := range 10 {
			r.marked(fmt.Sprint(1000+n), time.Hour)
		}
		confirms := 0
		r.endpoints.confirm = func(context.Context) error {
			if confirms++; confirms == 5 {
				for n := range 10 {
					r.endpoint(fmt.Sprint("late-", n), int64(1000+n))
				}
			}
			return nil
		}
		r.start()
		r.at(30 * time.Minute)
		deletes := 0
		for _, note := range r.notes {
			if strings.Contains(note, "delete") {
				deletes++
			}
		}
		if deletes < 3 || deletes > 5 || len(r.notes) != 10 { // the others are unmarked
			t.Errorf("writes: %v", r.notes)
		}
	})
}

// unreadable are users some of which cannot be decoded.
type unreadable struct {
	referrers
	now *atomic.Bool
}

func (u unreadable) complete() error {
	if u.now.Load() {
		return errors.New("one cannot be decoded")
	}
	return nil
}

// IDGC-4: users that cannot be read may use anything.
func TestUnreadableUsers(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.marked("1001", time.Hour)
		now := &atomic.Bool{}
		r.wrap = func(u referrers) referrers { return unreadable{u, now} }
		r.start()
		r.at(10 * time.Minute) // the first look was whole
		now.Store(true)
		r.at(3 * time.Hour)
		r.happened()
		if d := r.degraded(); !strings.Contains(d, "one cannot be decoded") {
			t.Errorf("degraded: %s", d)
		}
		now.Store(false)
		r.at(4 * time.Hour)
		if len(r.notes) != 1 || !strings.HasSuffix(r.notes[0], "delete 1001") || r.degraded() != "" {
			t.Errorf("writes: %v; degraded: %s", r.notes, r.degraded())
		}
	})
}

// IDGC-4: an endpoint of which it cannot be decoded which identity it has may have any;
// what else cannot be decoded of it does not matter. So with pods.
func TestUsersThatCannotBeDecoded(t *testing.T) {
	codec, err := slim.JSON[ciliumio.Endpoint]()
	if err != nil {
		t.Fatal(err)
	}
	endpoint := func(rest string) *ciliumio.Endpoint {
		e := &ciliumio.Endpoint{}
		if err := codec.DecodeJSON([]byte(`{"metadata":{"name":"web"},`+rest+`}`), e); err != nil {
			t.Fatal(err)
		}
		return e
	}
	for name, test := range map[string]struct {
		spoil func(*rig)
		says  string // "" if it does not matter
	}{
		"identity":   {func(r *rig) { r.endpoints.Upsert(endpoint(`"status":{"identity":{"id":"1001"}}`)) }, "status.identity of 1 CiliumEndpoints"},
		"status":     {func(r *rig) { r.endpoints.Upsert(endpoint(`"status":[]`)) }, "status.identity of 1 CiliumEndpoints"},
		"networking": {func(r *rig) { r.endpoints.Upsert(endpoint(`"status":{"identity":{"id":7},"networking":"none"}`)) }, ""},
		"pods":       {func(r *rig) { r.assigned.hidden = errors.New("2 pods cannot be decoded") }, "2 pods"},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(r *rig) {
				r.cluster.OperatorManagesIdentities = true
				r.marked("1001", time.Hour)
				test.spoil(r)
				r.start()
				r.at(5 * time.Hour)
				if held := len(r.notes) == 0; held != (test.says != "") || !strings.Contains(r.degraded(), test.says) {
					t.Errorf("writes: %v; degraded: %s", r.notes, r.degraded())
				}
			})
		})
	}
}

// IDGC-4: pods are all known before anything is judged.
func TestPodsAreComplete(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.cluster.OperatorManagesIdentities = true
		r.assigned.complete = make(chan struct{})
		r.marked("1001", time.Hour)
		r.start()
		r.at(5 * time.Hour)
		r.happened()
		r.counts(0, 0, 0, 0)
		r.assigned.set("web", 1001)
		close(r.assigned.complete)
		r.at(8 * time.Hour)
		r.happened("5h0m0s unmark 1001")
	})
}

// IDGC-4: the operator is to create identities, and no module does.
func TestNobodyAssigns(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.cluster.OperatorManagesIdentities, r.assigned = true, nil
		r.marked("1001", time.Hour)
		r.start()
		r.at(5 * time.Hour)
		r.happened()
		if d := r.degraded(); !strings.Contains(d, "no identity is deleted") {
			t.Errorf("degraded: %q", d)
		}
	})
}

// IDGC-17.
func TestBrake(t *testing.T) {
	inBubble(t, func(r *rig) {
		for n := range 20 {
			r.marked(fmt.Sprint(1000+n), time.Hour)
		}
		r.start()
		r.at(2 * time.Hour)
		r.happened()
		r.counts(1, 7, 21, 0)
		if d := r.degraded(); !strings.Contains(d, "20 of 21 objects") {
			t.Errorf("degraded: %s", d)
		}
	})
}

// IDGC-13: marks that fail are tried again, and keep no other.
func TestMarkFails(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.identity("1001")
		r.identity("1002")
		r.fails["update 1001"] = apierrors.NewTooManyRequests("slow down", 1)
		r.start()
		r.at(17*time.Minute + 30*time.Second)
		if got := strings.Join(r.notes, ", "); !strings.Contains(got, "17m0s mark 1002") || strings.Count(got, "update 1001: TooManyRequests") < 3 {
			t.Errorf("writes: %s", got)
		}
		r.mu.Lock()
		r.fails, r.notes = nil, nil
		r.mu.Unlock()
		r.at(20 * time.Minute)
		if len(r.notes) != 1 || !strings.HasSuffix(r.notes[0], "mark 1001") {
			t.Errorf("writes: %v", r.notes)
		}
		if text, _ := r.text("1001"); text != r.began.Add(17*time.Minute).Format(time.RFC3339Nano) {
			t.Errorf("the mark is %q", text)
		}
	})
}

// Two operators that both think they lead: what one has changed the other leaves.
func TestTwoLeaders(t *testing.T) {
	inBubble(t, func(r *rig) {
		other := &rig{
			t: r.t, config: r.config, cluster: r.cluster, identities: r.identities, endpoints: r.endpoints, slices: r.slices, pods: r.pods,
			share: 1, metrics: identitygc.NewMetrics(metrics.Factory{}), marks: newMarkMetrics(metrics.Factory{}), tree: r.tree, server: r.server,
		}
		for n := range 5 {
			r.identity(fmt.Sprint(1000 + n))
			r.identity(fmt.Sprint(2000 + n))
			r.endpoint(fmt.Sprint("web-", n), int64(2000+n))
		}
		r.pause = 100 * time.Millisecond
		r.start()
		other.start()
		r.at(2 * time.Hour)
		other.stop()
		counts := map[string]int{}
		for _, note := range r.notes {
			counts[strings.Fields(note)[1]]++
			if strings.Contains(note, " 20") {
				t.Error(note)
			}
		}
		if counts["mark"] != 5 || counts["delete"] < 5 {
			t.Errorf("%v:\n%s", counts, strings.Join(r.notes, "\n"))
		}
		for n := range 5 {
			if _, there := r.text(fmt.Sprint(1000 + n)); there {
				t.Error("garbage is left")
			}
		}
	})
}
