// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package endpointslice

import (
	"fmt"
	"math"
	"math/rand/v2"
	gslices "slices"
	"testing"
	"time"

	"golang.org/x/time/rate"

	v2 "github.com/skep-operator/skep/resources/api/v2"
	"github.com/skep-operator/skep/resources/api/v2alpha1"
	"github.com/skep-operator/skep/resources/stream/ciliumio"
	"github.com/skep-operator/skep/resources/stream/slim"
)

// TestEconomy plays 16,000 endpoints in 50 namespaces, 100 a second, on a clock
// of its own, and counts writes: beside the fewest with which each endpoint can be
// written within a second. A write takes 10 ms, and 50 a second are allowed.
func TestEconomy(t *testing.T) {
	const events, namespaces = 16_000, 50
	r := rand.New(rand.NewPCG(1, 2))
	deployments := func() (all []v2alpha1.CoreCiliumEndpoint, in []int) {
		for d := 0; len(in) < events; d++ {
			ns := r.IntN(namespaces)
			for range 1 + int(240/math.Pow(float64(d+5)/5, 0.8)) {
				in = append(in, ns)
				all = append(all, v2alpha1.CoreCiliumEndpoint{IdentityID: int64(d)})
			}
		}
		return all[:events], in[:events]
	}
	workloads, places := deployments()
	for _, c := range []struct {
		name       string
		byIdentity bool
		namespace  func(i int) int
		most       float64 // writes per event
	}{
		{"one namespace after another", false, func(i int) int { return i * namespaces / events }, 0.03},
		{"one deployment after another", false, func(i int) int { return places[i] }, 0.20},
		{"random", false, func(int) int { return r.IntN(namespaces) }, 0.45},
		{"round robin", false, func(i int) int { return i % namespaces }, 0.52},
		{"one deployment after another, by identity", true, func(i int) int { return places[i] }, 0.22},
	} {
		s := newEconomy(c.byIdentity)
		for i := range events {
			says := workloads[i]
			says.Name, says.Networking = fmt.Sprint("e", i), &v2.EndpointNetworking{}
			s.happens(time.Duration(i)*10*time.Millisecond, slim.Key{Namespace: fmt.Sprint(c.namespace(i)), Name: says.Name}, says)
		}
		s.until(events*10*time.Millisecond + time.Minute)
		gslices.Sort(s.delays)
		p99 := s.delays[len(s.delays)*99/100]
		per, least := float64(s.writes)/events, float64(s.fewest())/events
		t.Logf("%-42s %.4f writes per event, at least %.4f; p50 %s, p99 %s", c.name, per, least, s.delays[len(s.delays)/2], p99)
		if len(s.delays) != events || per > c.most || p99 > time.Second {
			t.Errorf("%s: %d of %d are written, %.4f writes per event, at most %.4f are allowed; p99 %s", c.name, len(s.delays), events, per, c.most, p99)
		}
	}
}

// economy is a duty on a clock of its own.
type economy struct {
	plan    *planner
	batch   *batch
	limiter *rate.Limiter
	now     time.Time
	start   time.Time
	ready   []string
	view    map[slim.Key]v2alpha1.CoreCiliumEndpoint
	waiting map[slim.Key]time.Time
	answers []answer
	delays  []time.Duration
	writes  int
	groups  map[group][]time.Time
}

type answer struct {
	at    time.Time
	order writeOp
}

func newEconomy(byIdentity bool) *economy {
	n := 0
	s := &economy{
		plan: newPlanner(100, byIdentity, func() string { n++; return fmt.Sprint(n) }), batch: newBatch(), limiter: rate.NewLimiter(maxLimit, maxBurst),
		start: time.Unix(1_000_000, 0), view: map[slim.Key]v2alpha1.CoreCiliumEndpoint{}, waiting: map[slim.Key]time.Time{}, groups: map[group][]time.Time{},
	}
	s.now = s.start
	s.plan.bootstrap(s.says)
	s.plan.confirm()
	return s
}

func (s *economy) says(key slim.Key, _ int64) (v2alpha1.CoreCiliumEndpoint, bool) {
	e, ok := s.view[key]
	return e, ok
}

func (s *economy) happens(at time.Duration, key slim.Key, says v2alpha1.CoreCiliumEndpoint) {
	s.until(at)
	s.view[key], s.waiting[key] = says, s.now
	g := s.plan.groupOf(key.Namespace, says.IdentityID)
	s.groups[g] = append(s.groups[g], s.now)
	s.plan.upsert(key, ciliumio.SliceEndpointOf(&says), size(&says))
	s.note()
}

func (s *economy) note() {
	for _, touched := range s.plan.drain() {
		s.batch.add(touched.name, s.now, s.plan.isFull(touched))
	}
}

// until lets time pass, in steps of 5 ms.
func (s *economy) until(at time.Duration) {
	for ; s.now.Before(s.start.Add(at)); s.now = s.now.Add(5 * time.Millisecond) {
		for len(s.answers) > 0 && !s.answers[0].at.After(s.now) {
			s.answered(s.answers[0].order)
			s.answers = s.answers[1:]
		}
		due, _ := s.batch.popDue(s.now)
		for _, w := range due {
			s.ready = append(s.ready, w.name)
		}
		for len(s.ready) > 0 {
			o := s.plan.nextOp(s.ready[0], s.says)
			if o.kind != opNone && !s.limiter.AllowN(s.now, 1) {
				break
			}
			if s.batch.remove(s.ready[0]); o.slice != nil {
				s.plan.recordStart(o)
			}
			if s.ready = s.ready[1:]; o.kind != opNone {
				s.writes++
				s.answers = append(s.answers, answer{s.now.Add(10 * time.Millisecond), o})
			}
		}
	}
}

func (s *economy) answered(o writeOp) {
	for _, e := range o.after {
		key := o.slice.key(e.Name)
		if at, waits := s.waiting[key]; waits {
			s.delays = append(s.delays, s.now.Sub(at))
			delete(s.waiting, key)
		}
	}
	s.plan.recordWrite(o, slim.ParseUID(o.slice.name), slim.Revision(s.writes))
	s.note()
}

// fewest is the fewest writes: for each group one per second in which something
// happens, as late as possible, and one for each slice that it needs.
func (s *economy) fewest() (n int) {
	for _, times := range s.groups {
		windows := 0
		var end time.Time
		for _, at := range times {
			if at.After(end) {
				windows++
				end = at.Add(time.Second)
			}
		}
		n += max(windows, (len(times)+99)/100)
	}
	return n
}
