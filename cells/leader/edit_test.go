// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package leader

import (
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/utils/ptr"
)

// edit is a change of the lease by something that is no replica.
type edit struct {
	name   string
	change func(lease object, standby string)
	// ends is set where the holder cannot know whether another replica led
	// meanwhile, so that its term ends.
	ends bool
}

// waitedOut is how long a lease with the edit is waited out.
func (e edit) waitedOut(cut bool) time.Duration {
	lasts := timing.LeaderElectionLeaseDuration
	if lease := (object{"spec": object{}, "metadata": object{}}); cut {
		e.change(lease, "")
		if seconds, ok := lease["spec"].(object)["leaseDurationSeconds"].(int); ok {
			lasts = timing.waitOut(ptr.To(int32(seconds)))
		}
	}
	return lasts
}

// absent removes a field.
const absent = "(absent)"

func set(lease object, field string, value any) {
	spec := lease["spec"].(object)
	if value == absent {
		delete(spec, field)
		return
	}
	spec[field] = value
}

func annotate(lease object, value any) {
	meta := lease["metadata"].(object)
	if value == absent {
		delete(meta, "annotations")
		return
	}
	meta["annotations"] = object{writtenAnnotation: value}
}

// times are values of a field with a time.
var times = []any{absent, nil, "0001-01-01T00:00:00.000000Z", "1970-01-01T00:00:00.000000Z", "2999-12-31T23:59:59.999999Z"}

// edits are odd values of every field, alone and of a lease that names no holder.
func edits() []edit {
	fields := []struct {
		name   string
		values []any
		ends   bool
	}{
		{"leaseDurationSeconds", []any{absent, 0, -1, 1, 20, math.MaxInt32}, false},
		{"acquireTime", times, true},
		{"renewTime", times, false},
		{"leaseTransitions", []any{absent, -1, 0, 7, math.MaxInt32 - 1, math.MaxInt32}, true},
		{"preferredHolder", []any{"", "stranger"}, false},
		{"strategy", []any{"OldestEmulationVersion", "no such strategy"}, false},
		{"holderIdentity", []any{"stranger", strings.Repeat("x", 1<<12)}, true},
	}
	all := []edit{
		{"nothing but a new version", func(object, string) {}, false},
		{"the holder is the standby", func(l object, standby string) { set(l, "holderIdentity", standby) }, true},
		{"no fields", func(l object, _ string) { l["spec"] = object{} }, true},
		{"as client-go releases", func(l object, _ string) {
			now := time.Now().UTC().Format("2006-01-02T15:04:05.000000Z")
			set(l, "holderIdentity", "")
			set(l, "leaseDurationSeconds", 1)
			set(l, "acquireTime", now)
			set(l, "renewTime", now)
		}, true},
	}
	for _, f := range fields {
		for _, v := range f.values {
			text, _ := json.Marshal(v)
			name := fmt.Sprintf("%s=%.30s", f.name, text)
			all = append(all, edit{name, func(l object, _ string) { set(l, f.name, v) }, f.ends})
			if f.name == "holderIdentity" {
				continue
			}
			all = append(all, edit{"no holder, " + name, func(l object, _ string) { set(l, "holderIdentity", ""); set(l, f.name, v) }, f.ends})
		}
	}
	for _, empty := range []any{absent, nil} {
		all = append(all, edit{fmt.Sprintf("holder %v", empty), func(l object, _ string) { set(l, "holderIdentity", empty) }, false})
	}
	for _, a := range annotations {
		all = append(all, edit{fmt.Sprintf("no holder, annotation %.60v", a), func(l object, _ string) { set(l, "holderIdentity", ""); annotate(l, a) }, false})
	}
	return all
}

// annotations are hand-overs that are none of the second term, whose lease has 1
// transition. The first ended at the time that only its own lease has.
var annotations = []any{
	absent, "", "null", "{}", "true", "no JSON", `{"transitions":"1"}`,
	`{"transitions":0,"written":{"complete":true}}`,
	`{"transitions":1,"written":{"complete":true}}`,
	`{"transitions":1,"released":"2000-01-01T00:00:00Z","written":{"complete":true}}`,
	`{"transitions":2,"written":{"complete":true}}`,
	`{"transitions":1e99}`,
}

// LEAD-10 to LEAD-12: an edited lease makes no two replicas write, and leaves none without a leader.
// Its holder, if it is alive, goes on where no other can have led meanwhile; with a
// holder that is gone, it is waited out.
func TestAnEditedLease(t *testing.T) {
	for _, e := range edits() {
		t.Run(e.name, func(t *testing.T) {
			t.Parallel()
			for _, cut := range []bool{false, true} {
				synctest.Test(t, func(t *testing.T) { runEdit(t, e, cut) })
			}
		})
	}
}

// runEdit makes an edit while the second of two terms goes on. One standby has seen the
// lease before, another starts after the edit. cut is whether the holder is out of
// reach.
func runEdit(t *testing.T, e edit, cut bool) {
	s := newSimulation(t)
	defer s.stop()
	first := s.start("first")
	s.awaitWriter(time.Second)
	a := s.start("a")
	time.Sleep(1500 * time.Millisecond)
	first.stop()
	if w := s.awaitWriter(time.Second); w != "a" {
		t.Fatalf("%q leads after an orderly stop", w)
	}
	standby := s.start("b")
	time.Sleep(2500 * time.Millisecond)
	a.setCut(cut)
	s.api.edit(func(lease object) { e.change(lease, standby.identity) })
	s.start("c")
	edited, name := s.elapsed(), fmt.Sprintf("cut=%v", cut)

	last := s.awaitStable(e.waitedOut(cut) + 2*timing.LeaderElectionLeaseDuration)
	switch {
	case last == "":
		t.Errorf("%s: nobody leads %s after the edit: %s", name, s.elapsed()-edited, encode(s.api.copy()["spec"]))
	case cut && last == "a":
		t.Errorf("%s: %s leads", name, last)
	case !cut && !e.ends && (last != "a" || a.countTerms() != 1):
		t.Errorf("%s: %s leads, a in its term number %d; want a to go on", name, last, a.countTerms())
	case !cut && e.ends && last == "a" && a.countTerms() == 1:
		t.Errorf("%s: the first term of a goes on, although another may have led", name)
	}
	spec := s.api.copy()["spec"].(object)
	if spec["holderIdentity"] == "" || spec["leaseDurationSeconds"] != 5.0 || spec["strategy"] != nil || spec["preferredHolder"] != nil {
		t.Errorf("%s: the lease in the end: %s", name, encode(spec))
	}
}

// LEAD-8: a lease that is deleted, and one that is made again without a holder or as it was
// released before.
func TestADeletedLeaseIsWaitedOut(t *testing.T) {
	for _, again := range []string{"", "empty", "released"} {
		for _, cut := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				s := newSimulation(t)
				defer s.stop()
				first := s.start("first")
				s.awaitWriter(time.Second)
				first.stop()
				released := s.api.copy()
				a := s.start("a")
				s.awaitWriter(time.Second)
				s.start("b")
				time.Sleep(2500 * time.Millisecond)
				a.setCut(cut)
				s.api.remove()
				if again != "" {
					delete(released["metadata"].(object), "uid")
					if again == "empty" {
						released["spec"] = object{}
					}
					s.api.make(released)
				}
				if last := s.awaitStable(3 * timing.LeaderElectionLeaseDuration); last == "" || cut && last == "a" {
					t.Errorf("made again %q, cut %v: %q leads", again, cut, last)
				}
			})
		}
	}
}

// awaitStable waits until a replica writes, within the limit, that still does when its
// lease would have run out.
func (s *simulation) awaitStable(limit time.Duration) string {
	since, last := s.elapsed(), ""
	for end := s.elapsed() + limit; last != "" || s.elapsed() < end; time.Sleep(250 * time.Millisecond) {
		if now := strings.Join(s.writers(), ","); now != last {
			since, last = s.elapsed(), now
		}
		if last != "" && s.elapsed()-since > 6*time.Second {
			return last
		}
	}
	return ""
}
