// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package sweep

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/skep-operator/skep/resources/k8s"
	"github.com/skep-operator/skep/runtime/cell"
	"github.com/skep-operator/skep/runtime/health"
	"github.com/skep-operator/skep/runtime/seedtest"
)

// universe is a cluster in a bubble: owners come, go and come again, each with a
// thing of its name that its owner's death leaves behind, or not. Two streams show
// owners and things, each as it was some time ago, up to lateness.
type universe struct {
	r        *rand.Rand
	lateness time.Duration
	careless bool // deletes have no preconditions

	mu     sync.Mutex
	now    moment   // the truth
	past   []moment // all of it, the newest last
	revs   int      // given out so far
	owners lag
	things lag

	wrong   []string // deletes of things whose owner lives
	deletes int
}

type moment struct {
	at     time.Time
	owners map[string]bool
	things map[string]thing
}

type thing struct {
	name     string
	uid      int
	revision int // an owner that takes a thing over writes it
}

// lag is how far a stream is behind. It never goes back.
type lag struct{ shows time.Time }

func (u *universe) change(change func(m *moment)) {
	next := moment{at: time.Now(), owners: map[string]bool{}, things: map[string]thing{}}
	for name := range u.now.owners {
		next.owners[name] = true
	}
	for name, th := range u.now.things {
		next.things[name] = th
	}
	change(&next)
	u.now = next
	u.past = append(u.past, next)
}

func (u *universe) roll(n int) int {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.r.IntN(n)
}

// rev is called with the lock held.
func (u *universe) rev() int { u.revs++; return u.revs }

// view is what a stream shows now: mostly all, at times nothing new for long.
func (u *universe) view(l *lag) moment {
	if u.r.IntN(3) > 0 {
		if at := time.Now().Add(-time.Duration(u.r.Int64N(int64(u.lateness) + 1))); at.After(l.shows) {
			l.shows = at
		}
	}
	if oldest := time.Now().Add(-u.lateness); oldest.After(l.shows) {
		l.shows = oldest
	}
	shown := u.past[0]
	for _, m := range u.past {
		if !m.at.After(l.shows) {
			shown = m
		}
	}
	return shown
}

func (u *universe) scan(context.Context) (Found[thing, thing], error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.r.IntN(20) == 0 {
		return Found[thing, thing]{}, errors.New("not complete")
	}
	owners, things := u.view(&u.owners), u.view(&u.things)
	f := Found[thing, thing]{Total: len(things.things)}
	for name, th := range things.things {
		if !owners.owners[name] {
			f.Candidates = append(f.Candidates, Candidate[thing, thing]{Key: thing{name: name, uid: th.uid}, Object: th})
		}
	}
	return f, nil
}

// answer is what comes of a request: it takes its time, and may be lost.
func (u *universe) answer() error {
	u.mu.Lock()
	pause := time.Duration(u.r.Int64N(int64(10 * time.Second)))
	lost := u.r.IntN(10) == 0
	u.mu.Unlock()
	time.Sleep(pause)
	if lost {
		return errors.New("no answer")
	}
	return nil
}

func (u *universe) check(_ context.Context, th thing) (bool, error) {
	if err := u.answer(); err != nil {
		return false, err
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	return !u.now.owners[th.name], nil
}

var things = schema.GroupResource{Resource: "things"}

func aThing(name string) k8s.Ref {
	return k8s.Ref{Resource: things.WithVersion("v1"), Name: name}
}

// delete has the preconditions that deletes have: uid and revision.
func (u *universe) delete(_ context.Context, th thing) (Outcome, error) {
	lost := u.answer()
	if lost != nil && u.roll(2) == 0 {
		return Failed, lost
	} // else it is deleted, and the answer is lost
	u.mu.Lock()
	defer u.mu.Unlock()
	now, ok := u.now.things[th.name]
	switch {
	case !ok:
		return OutcomeOf(apierrors.NewNotFound(things, th.name), aThing(th.name))
	case now != th && !u.careless:
		return OutcomeOf(apierrors.NewConflict(things, th.name, errors.New("it is another one")), aThing(th.name))
	}
	u.deletes++
	if u.now.owners[th.name] {
		u.wrong = append(u.wrong, fmt.Sprintf("%v at %s", th, time.Since(u.past[0].at)))
	}
	u.change(func(m *moment) { delete(m.things, th.name) })
	if lost != nil {
		return Failed, lost
	}
	return Deleted, nil
}

// live changes the universe for a while.
func (u *universe) live(names, steps int) {
	for range steps {
		u.mu.Lock()
		name := fmt.Sprint("thing-", u.r.IntN(names))
		u.change(func(m *moment) {
			switch u.r.IntN(5) {
			case 0, 1: // an owner comes, and takes over what there is of its name
				if !m.owners[name] {
					m.owners[name] = true
					th, ok := m.things[name]
					if !ok {
						th = thing{name: name, uid: u.rev()}
					}
					th.revision = u.rev()
					m.things[name] = th
				}
			case 2: // it goes, and leaves its thing
				delete(m.owners, name)
			case 3: // it goes, with its thing
				delete(m.owners, name)
				delete(m.things, name)
			case 4: // it makes its thing anew
				if m.owners[name] {
					m.things[name] = thing{name: name, uid: u.rev(), revision: u.rev()}
				}
			}
		})
		pause := time.Duration(u.r.Int64N(int64(20 * time.Second)))
		u.mu.Unlock()
		time.Sleep(pause)
	}
}

// run lets operators sweep a universe, one after the other, and counts what they
// delete that is needed, what they delete, and what garbage is left in the end.
func run(t *testing.T, seed uint64, edit func(*universe, *Spec[thing, thing])) (wrong []string, deletes, left int) {
	synctest.Test(t, func(t *testing.T) {
		u := &universe{r: rand.New(rand.NewPCG(seed, 2)), lateness: 300 * time.Second}
		u.change(func(*moment) {})
		spec := Spec[thing, thing]{
			Rule:     "collect",
			Interval: time.Duration(1+u.r.IntN(600)) * time.Second, Grace: time.Duration(u.r.IntN(120)) * time.Second,
			Scan: u.scan, Check: u.check, Delete: u.delete,
			Trigger: func(th thing) k8s.Trigger { return k8s.Trigger{Kind: "Thing", Name: th.name} },
		}
		edit(u, &spec)
		living := make(chan struct{})
		go func() {
			defer close(living)
			u.live(12, 300)
		}()
		lives := true
		for lives {
			ctx, cancel := context.WithTimeout(t.Context(), time.Duration(u.roll(1800))*time.Second)
			s := New(makeDeps(cell.ModuleInfo{ID: "test"}, Config{SweepMaxShare: 1}, slog.New(slog.DiscardHandler), health.NewTree().Reporter("test"), newMetrics()), spec)
			go func() {
				for ctx.Err() == nil {
					s.Kick()
					time.Sleep(90 * time.Second)
				}
			}()
			_ = s.Run(ctx)
			cancel()
			select {
			case <-living:
				lives = false
			default:
			}
		}
		// Quiet at last.
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Hour)
		defer cancel()
		s := New(makeDeps(cell.ModuleInfo{ID: "test"}, Config{SweepMaxShare: 1}, slog.New(slog.DiscardHandler), health.NewTree().Reporter("test"), newMetrics()), spec)
		_ = s.Run(ctx)
		for name := range u.now.things {
			if !u.now.owners[name] {
				left++
			}
		}
		wrong, deletes = u.wrong, u.deletes
		synctest.Wait()
		time.Sleep(5 * time.Minute) // those who ask for sweeps end
	})
	return wrong, deletes, left
}

func seeds() uint64 {
	if seedtest.Soak() {
		return 5000
	}
	return 60
}

// Streams that are late, each by its own time up to five minutes, answers that are
// late or lost, operators that follow each other, owners that come again under the
// same name: nothing is deleted that is needed, and all garbage is in the end.
func TestNothingNeededIsDeleted(t *testing.T) {
	total := 0
	for seed := range seeds() {
		wrong, deletes, left := run(t, seed, func(*universe, *Spec[thing, thing]) {})
		total += deletes
		if len(wrong) > 0 || left > 0 {
			t.Fatalf("seed %d: deleted although needed: %v; left in the end: %d", seed, wrong, left)
		}
	}
	if total == 0 {
		t.Error("nothing was deleted: the test shows nothing")
	}
	t.Logf("%d deletes, all of garbage", total)
}

// The model above finds what it is there for: without asking, or with deletes
// that hit whatever has the name, needed things are deleted.
func TestModelFindsMistakes(t *testing.T) {
	for name, mistake := range map[string]func(*universe, *Spec[thing, thing]){
		"nobody is asked": func(_ *universe, s *Spec[thing, thing]) { s.Check = nil },
		"deletes by name": func(u *universe, _ *Spec[thing, thing]) { u.careless = true },
	} {
		t.Run(name, func(t *testing.T) {
			found := 0
			for seed := range uint64(60) {
				wrong, _, _ := run(t, seed, mistake)
				found += len(wrong)
			}
			t.Logf("%d needed things were deleted", found)
			if found == 0 {
				t.Error("the model does not notice")
			}
		})
	}
}
