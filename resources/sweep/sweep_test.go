// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package sweep

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"golang.org/x/time/rate"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/skep-operator/skep/resources/k8s"
	"github.com/skep-operator/skep/runtime/cell"
	"github.com/skep-operator/skep/runtime/health"
)

// rig is a sweep over names, in a bubble. What happens is noted with its time.
type rig struct {
	t       *testing.T
	tree    *health.Tree
	log     bytes.Buffer // read when the sweep has stopped
	metrics *sweepMetrics
	began   time.Time
	ended   chan error
	stop    func()
	*Sweep[string, string]

	mu      sync.Mutex
	garbage []string
	total   int
	scanErr error
	needed  map[string]error // what Check says: nil is needed, an error
	fails   map[string]error // what Delete says
	held    map[string]bool  // by a finalizer
	leaving map[string]bool  // deleted, and held
	notes   []string
}

func newRig(t *testing.T, spec Spec[string, string]) *rig {
	r := &rig{t: t, tree: health.NewTree(), metrics: newMetrics(), began: time.Now(), needed: map[string]error{}, fails: map[string]error{}, held: map[string]bool{}, leaving: map[string]bool{}}
	scope := makeDeps(cell.ModuleInfo{ID: "test"}, Config{SweepMaxShare: 0.5},
		slog.New(slog.NewTextHandler(&r.log, &slog.HandlerOptions{Level: slog.LevelDebug})), r.tree.Reporter("test"), r.metrics)
	spec.Rule = "collect"
	spec.Scan, spec.Delete = r.scan, r.delete
	if spec.Check == nil {
		spec.Check = r.check
	}
	spec.Trigger = func(name string) k8s.Trigger { return k8s.Trigger{Kind: "Thing", Name: name} }
	r.Sweep = New(scope, spec)
	return r
}

func (r *rig) start() {
	ctx, cancel := context.WithCancel(r.t.Context())
	r.ended = make(chan error, 1)
	go func() { r.ended <- r.Run(ctx) }()
	r.stop = func() { cancel(); <-r.ended }
}

func (r *rig) set(change func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	change()
}

func (r *rig) note(format string, args ...any) {
	r.notes = append(r.notes, fmt.Sprintf("%s ", time.Since(r.began))+fmt.Sprintf(format, args...))
}

func (r *rig) scan(context.Context) (Found[string, string], error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.note("scan")
	f := Found[string, string]{Total: max(r.total, len(r.garbage))}
	for _, name := range r.garbage {
		f.Candidates = append(f.Candidates, Candidate[string, string]{Key: name, Object: name, Why: "test", Terminating: r.leaving[name]})
	}
	return f, r.scanErr
}

func (r *rig) check(_ context.Context, name string) (bool, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	err, needed := r.needed[name]
	return !needed, err
}

func (r *rig) delete(ctx context.Context, name string) (Outcome, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if got := k8s.CauseOf(ctx).String(); got != "test collect, set off by Thing "+name {
		r.t.Errorf("the cause is %q", got)
	}
	err := r.fails[name]
	r.note("delete %s: %v", name, err)
	outcome, err := OutcomeOf(err, aThing(name))
	switch {
	case outcome == Deleted && r.held[name]:
		r.leaving[name] = true
	case outcome == Deleted:
		r.garbage = slices.DeleteFunc(slices.Clone(r.garbage), func(g string) bool { return g == name })
	}
	return outcome, err
}

// happened checks what was noted since the last call.
func (r *rig) happened(want ...string) {
	r.t.Helper()
	synctest.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	if !slices.Equal(r.notes, want) {
		r.t.Errorf("what happened:\n\t%s\nwant:\n\t%s", strings.Join(r.notes, "\n\t"), strings.Join(want, "\n\t"))
	}
	r.notes = nil
}

func (r *rig) degraded() string {
	var texts []string
	for _, s := range r.tree.Degraded() {
		texts = append(texts, s.ID+": "+s.Message+": "+s.Error)
	}
	return strings.Join(texts, "\n")
}

func (r *rig) counted(want string) {
	r.t.Helper()
	var all []string
	for _, o := range []Outcome{Deleted, Gone, Changed, Spared, Failed} {
		if n := testutil.ToFloat64(r.metrics.Objects.With(prometheus.Labels{"module": "test", "outcome": string(o)})); n > 0 {
			all = append(all, fmt.Sprintf("%s %v", o, n))
		}
	}
	if got := strings.Join(all, ", "); got != want {
		r.t.Errorf("counted %q, want %q", got, want)
	}
}

const interval, grace = 5 * time.Minute, time.Minute

var usual = Spec[string, string]{Interval: interval, Grace: grace}

func TestSecondSightingDeletes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, usual)
		r.garbage = []string{"a"}
		r.start()
		r.happened("0s scan")
		time.Sleep(interval)
		r.happened("1m0s scan", "1m0s delete a: <nil>")
		r.set(func() { r.garbage = []string{"b"} })
		time.Sleep(2 * interval)
		r.happened("6m0s scan", "7m0s scan", "7m0s delete b: <nil>", "12m0s scan")
		r.stop()
		r.counted("deleted 2")
		if n := strings.Count(r.log.String(), "level=INFO"); n != 2 {
			t.Errorf("%d lines:\n%s", n, r.log.String())
		}
	})
}

func TestSoon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, usual)
		r.start()
		r.happened("0s scan")
		time.Sleep(10 * time.Second)
		r.Kick()
		r.Kick()
		r.happened() // a grace after the last one
		time.Sleep(interval - 10*time.Second)
		r.happened("1m0s scan")
		r.Kick() // at once
		r.happened("5m0s scan")
		r.stop()
	})
}

func TestForget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, usual)
		r.garbage = []string{"a", "b"}
		r.start()
		time.Sleep(30 * time.Second)
		r.Reset(func(k string) bool { return k == "a" })
		time.Sleep(2 * time.Minute)
		r.happened("0s scan", "1m0s scan", "1m0s delete b: <nil>", "2m0s scan", "2m0s delete a: <nil>")
		r.stop()
	})
}

// A candidate that is reset during a sweep is not deleted by it.
func TestForgetWhileDeleting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		spec := usual
		spec.Rate = rate.NewLimiter(rate.Every(time.Second), 1)
		r := newRig(t, spec)
		r.garbage = []string{"a", "b"}
		r.start()
		time.Sleep(time.Minute + 500*time.Millisecond)
		r.Reset(func(k string) bool { return k == "b" })
		time.Sleep(30 * time.Second)
		r.stop()
		r.happened("0s scan", "1m0s scan", "1m0s delete a: <nil>")
	})
}

func TestIncompleteViewDeletesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, usual)
		r.garbage, r.scanErr = []string{"a"}, errors.New("half of it is missing")
		r.start()
		time.Sleep(7 * time.Second)
		r.happened("0s scan", "1s scan", "3s scan", "6s scan")
		if got := r.degraded(); !strings.Contains(got, "test.sweep-collect: next sweep in 4s: nothing is deleted, the view is not complete: half of it is missing") {
			t.Error(got)
		}
		r.set(func() { r.scanErr = nil })
		time.Sleep(2 * time.Minute)
		r.happened("10s scan", "1m10s scan", "1m10s delete a: <nil>") // sightings began with the whole view
		if got := r.degraded(); got != "" {
			t.Error(got)
		}
		r.stop()
		if n := strings.Count(r.log.String(), "level=WARN"); n != 1 {
			t.Errorf("%d warnings:\n%s", n, r.log.String())
		}
	})
}

func TestOneFailureDoesNotStopOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, usual)
		r.garbage = []string{"a", "gone", "changed", "needed", "unclear", "z"}
		r.fails = map[string]error{
			"a": errors.New("internal error"), "gone": apierrors.NewNotFound(things, "gone"), "changed": apierrors.NewConflict(things, "changed", errors.New("other uid")),
		}
		r.needed = map[string]error{"needed": nil, "unclear": errors.New("no answer")}
		r.start()
		time.Sleep(grace + time.Second)
		r.happened("0s scan", "1m0s scan", "1m0s delete a: internal error",
			`1m0.05s delete gone: things "gone" not found`, `1m0.1s delete changed: Operation cannot be fulfilled on things "changed": other uid`, "1m0.25s delete z: <nil>")
		r.counted("deleted 1, gone 1, changed 1, spared 1, failed 2")
		got := r.degraded()
		for _, want := range []string{"deleting Thing a: internal error", "finding out whether Thing unclear is needed: no answer"} {
			if !strings.Contains(got, want) {
				t.Errorf("%s\n\tdoes not say %s", got, want)
			}
		}
		r.set(func() { r.garbage, r.fails, r.needed = []string{"a", "unclear"}, nil, nil })
		time.Sleep(10 * time.Second)
		r.happened("1m1.25s scan", "1m1.25s delete a: <nil>", "1m1.3s delete unclear: <nil>")
		if got := r.degraded(); got != "" {
			t.Error(got)
		}
		r.stop()
	})
}

func names(n int) []string {
	var all []string
	for i := range n {
		all = append(all, fmt.Sprintf("thing-%03d", i))
	}
	return all
}

func TestBrake(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, usual)
		r.garbage, r.total = names(51), 100
		r.start()
		time.Sleep(2*interval - time.Minute)
		r.happened("0s scan", "1m0s scan", "6m0s scan")
		if got := r.degraded(); !strings.Contains(got, "51 of 100 objects look like garbage") || !strings.Contains(got, "--sweep-max-share") {
			t.Error(got)
		}
		braked := func() float64 { return testutil.ToFloat64(r.metrics.Limited.WithLabelValues("test")) }
		if braked() != 1 {
			t.Error("the metric does not say so")
		}
		r.set(func() { r.total = 102 }) // a better view
		time.Sleep(interval)
		r.counted("deleted 51")
		if got := r.degraded(); got != "" || braked() != 0 {
			t.Error(got)
		}
		r.stop()
		if n := strings.Count(r.log.String(), "level=WARN"); n != 1 {
			t.Errorf("%d warnings:\n%s", n, r.log.String())
		}
	})
}

func TestOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, Spec[string, string]{NoSafetyLimit: true})
		r.garbage = names(12)
		r.fails = map[string]error{"thing-003": errors.New("no")}
		r.start()
		time.Sleep(10 * time.Second)
		r.counted("deleted 11, failed 4")
		r.set(func() { r.fails = nil })
		if err := <-r.ended; err != nil {
			t.Error(err)
		}
		r.counted("deleted 12, failed 4")
	})
}

func TestRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, usual)
		r.garbage, r.total = names(201), 1000
		r.start()
		time.Sleep(grace + 5*time.Second)
		synctest.Wait()
		r.counted("deleted 101") // 20 a second, and one at once
		r.stop()
	})
}

// An object that waits for its finalizers is deleted once and counted once,
// whichever writer deleted it, and named.
func TestTerminating(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, usual)
		r.garbage = []string{"held", "theirs", "z"}
		r.held["held"], r.leaving["theirs"] = true, true
		waits := func(want string) {
			t.Helper()
			synctest.Wait()
			all := r.tree.Snapshot()
			if i := slices.IndexFunc(all, func(s health.Status) bool { return s.ID == "test.sweep-collect" }); i < 0 || all[i].Message != want {
				t.Errorf("health says %+v", all)
			}
		}
		r.start()
		waits("1 deleted, waiting for finalizers: Thing theirs")
		time.Sleep(2 * interval)
		r.happened("0s scan", "1m0s scan", "1m0s delete held: <nil>", "1m0.05s delete z: <nil>", "6m0.05s scan")
		waits("2 deleted, waiting for finalizers: Thing held first")
		r.counted("deleted 2")
		if n := testutil.ToFloat64(r.metrics.Waiting.WithLabelValues("test")); n != 0 {
			t.Errorf("%v wait to be deleted", n)
		}
		if n := testutil.ToFloat64(r.metrics.Terminating.WithLabelValues("test")); n != 2 {
			t.Errorf("%v wait for their finalizers", n)
		}
		r.set(func() { r.garbage = nil })
		time.Sleep(interval)
		waits("")
		r.stop()
		for _, name := range []string{"held", "theirs"} {
			if n := strings.Count(r.log.String(), `msg="waiting for finalizers" rule=collect object="Thing `+name+`"`); n != 1 {
				t.Errorf("%s is logged %d times:\n%s", name, n, r.log.String())
			}
		}
	})
}

// So is one that is seen to be deleted only when views are brought up to date.
func TestTerminatingWhenConfirmed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r *rig
		spec := usual
		spec.Confirm = func(context.Context) error { r.set(func() { r.leaving["a"] = true }); return nil }
		r = newRig(t, spec)
		r.garbage = []string{"a", "b"}
		r.start()
		time.Sleep(grace)
		r.happened("0s scan", "1m0s scan", "1m0s scan", "1m0s delete b: <nil>")
		r.stop()
	})
}

// Stopping ends the sweep between two objects.
func TestStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, usual)
		r.garbage = names(9)
		r.start()
		time.Sleep(grace + 120*time.Millisecond)
		r.stop()
		r.counted("deleted 3")
		if got := r.degraded(); got != "" {
			t.Error(got)
		}
		if got := testutil.ToFloat64(r.metrics.Waiting.WithLabelValues("test")); got != 0 {
			t.Errorf("%v wait", got)
		}
	})
}

func TestConfirm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r *rig
		spec := usual
		var confirmErr error
		spec.Confirm = func(context.Context) error {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.note("confirm")
			r.garbage = slices.DeleteFunc(slices.Clone(r.garbage), func(g string) bool { return g == "stale" })
			return confirmErr
		}
		r = newRig(t, spec)
		r.garbage = []string{"stale", "a"}
		confirmErr = errors.New("no answer")
		r.start()
		time.Sleep(grace)
		r.happened("0s scan", "1m0s scan", "1m0s confirm")
		r.set(func() { confirmErr = nil; r.garbage = []string{"stale", "a"} })
		time.Sleep(time.Second)
		r.happened("1m1s scan", "1m1s confirm", "1m1s scan", "1m1s delete a: <nil>")
		r.counted("deleted 1, spared 1")
		r.stop()
	})
}

func tooMany(seconds int) error {
	return apierrors.NewGenericServerResponse(http.StatusTooManyRequests, "delete", things, "a", "slow down", seconds, true)
}

// A sweep ends when the API server asks for a pause, and the next one keeps it.
func TestRetryAfterEndsASweep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, usual)
		r.garbage = []string{"a", "b", "c"}
		r.fails = map[string]error{"a": tooMany(30)}
		r.start()
		time.Sleep(grace + 29*time.Second)
		r.happened("0s scan", "1m0s scan", "1m0s delete a: the server has received too many requests and has asked us to try again later (delete things a)")
		if got := r.degraded(); !strings.Contains(got, "next sweep in 30s, the API server asks for a pause of 30s") {
			t.Error(got)
		}
		r.set(func() { r.fails = nil })
		time.Sleep(2 * time.Second)
		r.stop()
		r.happened("1m30.05s scan", "1m30.05s delete a: <nil>", "1m30.1s delete b: <nil>", "1m30.15s delete c: <nil>")
	})
}

// Without the permission one delete is tried, and the next when it is granted.
func TestAMissingPermissionEndsASweep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		granted := make(chan struct{})
		r := newRig(t, Spec[string, string]{Interval: 20 * time.Second, Confirmations: 1})
		r.garbage = []string{"a", "b", "c"}
		r.fails = map[string]error{"a": &k8s.PermissionError{Permission: "delete things", Granted: granted, Err: errors.New("no")}}
		r.start()
		time.Sleep(5 * time.Minute)
		r.counted("failed 1")
		r.set(func() { r.fails = nil })
		close(granted)
		time.Sleep(time.Second)
		r.counted("deleted 3, failed 1")
		r.stop()
		if n := strings.Count(r.log.String(), "level=WARN"); n != 0 {
			t.Errorf("%d warnings, it is the permissions' to warn:\n%s", n, r.log.String())
		}
	})
}

// A delete that takes long shows while it does.
func TestADeleteThatTakesLongShows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, usual)
		r.garbage = []string{"a"}
		release := make(chan struct{})
		r.Sweep.spec.Delete = func(context.Context, string) (Outcome, error) { <-release; return Deleted, nil }
		r.start()
		time.Sleep(grace + 6*time.Second)
		if got := r.degraded(); !strings.Contains(got, "for Thing a since") {
			t.Errorf("degraded: %q", got)
		}
		close(release)
		synctest.Wait()
		if got := r.degraded(); got != "" {
			t.Error(got)
		}
		r.stop()
	})
}
