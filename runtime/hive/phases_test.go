// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package hive_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/pflag"

	"github.com/skep-operator/skep/runtime/cell"
	"github.com/skep-operator/skep/runtime/config"
	"github.com/skep-operator/skep/runtime/health"
	"github.com/skep-operator/skep/runtime/hive"
	"github.com/skep-operator/skep/runtime/job"
	"github.com/skep-operator/skep/runtime/lifecycle"
	"github.com/skep-operator/skep/runtime/logging/logtest"
	"github.com/skep-operator/skep/runtime/metrics"
)

type value struct{ text string }

type settings struct {
	Enable   bool
	Greeting string
}

func (s settings) Flags(fs *pflag.FlagSet) {
	fs.Bool("enable", s.Enable, "Switch it on")
	fs.String("greeting", s.Greeting, "What to say")
}

func (s settings) Validate() error {
	if s.Greeting == "" {
		return cell.Invalid("greeting", "must not be empty")
	}
	return nil
}

var enabled = cell.When("it is enabled", []string{"enable"}, func(s settings) bool { return s.Enable })

// A duty, with all that declares one.
func duty(d *diary) cell.Cell {
	return cell.Module("duty", "Greets",
		cell.Config(settings{Greeting: "hello"}),
		cell.Provide(func(s settings) *value { d.add("build " + s.Greeting); return &value{s.Greeting} }),
		cell.Module("part", "Is perhaps on", cell.EnabledBy(enabled), cell.Hook("part", func(*value) lifecycle.Hook { d.add("build part"); return d.hook("part") })),
		cell.Hook("greet", func(v *value) lifecycle.Hook { d.add("build hook"); return d.hook(v.text) }),
	)
}

func TestPhasesOneByOne(t *testing.T) {
	var d diary
	h := newHive(duty(&d))
	fs := h.FlagSet()
	if err := fs.Parse([]string{"--greeting=hi", "--enable"}); err != nil {
		t.Fatal(err)
	}
	if err := h.Configure(fs); err != nil {
		t.Fatal(err)
	}
	if e, _ := h.Values().Lookup("greeting"); e.Value != "hi" {
		t.Errorf("%+v", e)
	}
	if err := h.Select(); err != nil {
		t.Fatal(err)
	}
	if !h.Graph().Module("duty.part").Enabled {
		t.Error("the part is off")
	}
	if err := h.Validate(); err != nil {
		t.Fatal(err)
	}
	d.want(t) // nothing is built so far
	for range 2 {
		if err := h.Build(); err != nil {
			t.Fatal(err)
		}
	}
	d.wantSorted(t, "build hi", "build hook", "build part") // once
	for range 2 {
		if err := h.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	d.want(t, "start hi", "start part") // in order: the hook serves the value
	for range 2 {
		if err := h.Stop(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	d.want(t, "stop part", "stop hi")
}

func TestStartRunsAllPhases(t *testing.T) {
	var d diary
	h := newHive(duty(&d))
	if err := h.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := h.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	d.want(t, "build hello", "build hook", "start hello", "stop hello") // the part is off
}

func TestOutcomesAreRemembered(t *testing.T) {
	var d diary
	h := configured(t, newHive(cell.Set(duty(&d),
		cell.Module("broken", "Fails", cell.Invoke(func() error { d.add("invoke"); return errBroken })))), "--enable=maybe", "--greeting=")
	for range 2 {
		if err := h.Configure(nil); err == nil || !strings.Contains(err.Error(), "--enable") {
			t.Error("Configure:", err)
		}
		if err := h.Select(); err != nil {
			t.Error("Select:", err)
		}
		if err := h.Validate(); err == nil || !strings.Contains(err.Error(), "--greeting") {
			t.Error("Validate:", err)
		}
		for _, phase := range []func() error{h.Check, h.Build, func() error { return h.Start(t.Context()) }, func() error { return h.Run(t.Context()) }} {
			report := new(config.Report)
			if err := phase(); !errors.As(err, &report) || len(report.Problems) != 2 {
				t.Error(err)
			}
		}
		if err := h.Stop(t.Context()); err != nil {
			t.Error(err)
		}
	}
	d.want(t)

	h = newHive(cell.Module("broken", "Fails", cell.Invoke(func() error { d.add("invoke"); return errBroken })))
	for range 2 {
		if err := h.Build(); !errors.Is(err, errBroken) {
			t.Error(err)
		}
		if err := h.Start(t.Context()); !errors.Is(err, errBroken) {
			t.Error(err)
		}
		if err := h.TryTerms(); !errors.Is(err, errBroken) {
			t.Error(err)
		}
	}
	d.want(t, "invoke")
}

func TestAStartThatFailsStopsWhatItStarted(t *testing.T) {
	var d diary
	fails := lifecycle.Funcs{OnStart: func(context.Context) error { return errBroken }}
	h := newHive(cell.Set(
		cell.Module("a", "Is needed", cell.Provide(func() *value { return &value{} }), cell.Hook("a", func(*value) lifecycle.Hook { return d.hook("a") })),
		cell.Module("b", "Fails", cell.Hook("b", func(*value) lifecycle.Hook { return fails })),
	))
	for range 2 {
		if err := h.Start(t.Context()); !errors.Is(err, errBroken) || err.Error() != "starting b.hook-b: broken" {
			t.Error(err)
		}
		if err := h.Stop(t.Context()); err != nil {
			t.Error(err)
		}
	}
	d.want(t, "start a", "stop a")
}

func TestAStartThatFailsTellsAlsoWhatFailedToStop(t *testing.T) {
	errStop := errors.New("does not stop")
	h := newHive(cell.Set(
		cell.Module("a", "Is needed", cell.Provide(func() *value { return &value{} }), cell.Hook("a", func(*value) lifecycle.Hook {
			return lifecycle.Funcs{OnStop: func(context.Context) error { return errStop }}
		})),
		cell.Module("b", "Fails", cell.Hook("b", func(*value) lifecycle.Hook {
			return lifecycle.Funcs{OnStart: func(context.Context) error { panic("whoops") }}
		})),
	))
	err := h.Start(t.Context())
	if !errors.As(err, new(*lifecycle.PanicError)) || !errors.Is(err, errStop) {
		t.Error(err)
	}
}

func TestStartHasALimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		waits := func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
		h := newHive(cell.Set(
			cell.Module("slow", "Waits", cell.Provide(func() *value { return &value{} }), cell.Hook("x", func(*value) lifecycle.Hook { return lifecycle.Funcs{OnStart: waits} })),
			cell.Module("after", "Comes after", cell.Hook("x", func(*value) lifecycle.Hook { return nil }))),
			hive.StartStopTimeouts(time.Minute, time.Second))
		began := time.Now()
		err := h.Start(t.Context())
		if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "starting slow.hook-x") || strings.Contains(err.Error(), "after.hook-x") {
			t.Error(err)
		}
		if took := time.Since(began); took != time.Minute {
			t.Error(took)
		}
	})
}

func TestStopWithoutStart(t *testing.T) {
	h := newHive(cell.Module("a", "Is never started", cell.Hook("x", func() lifecycle.Hook { return nil })))
	if err := h.Stop(t.Context()); err != nil {
		t.Error(err)
	}
	if err := h.Build(); err != nil {
		t.Error(err)
	}
	if err := h.Stop(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestHooksAndJobsThatAreNil(t *testing.T) {
	started(t, cell.Module("a", "Has nothing to start", cell.Hook("x", func() lifecycle.Hook { return nil })))
}

func TestTwoHivesShareNothing(t *testing.T) {
	type counters struct{ Greetings prometheus.Counter }
	var lists [2]diary
	var trees [2]*health.Tree
	var registries [2]*metrics.Registry
	var hives [2]*hive.Hive
	cells := func(i int) cell.Cell {
		return cell.Set(duty(&lists[i]), watching(&trees[i]), cell.Module("counts", "Counts",
			cell.Metrics(func() *counters {
				return &counters{prometheus.NewCounter(prometheus.CounterOpts{Name: "greetings_total", Help: "Greetings"})}
			}),
			cell.Invoke(func(c *counters, r *metrics.Registry) { c.Greetings.Inc(); registries[i] = r }),
			cell.Invoke(func(r health.Reporter) { r.OK(fmt.Sprint(i)) })))
	}
	for i, args := range [][]string{{"--greeting=first"}, {"--greeting=second", "--enable"}} {
		hives[i] = configured(t, newHive(cells(i)), args...)
		if err := hives[i].Start(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	for i := range hives {
		wantHealth(t, trees[i], fmt.Sprintf("OK counts: %d", i))
		families, err := registries[i].Gather()
		if err != nil || !slices.ContainsFunc(families, func(f family) bool { return f.GetName() == "greetings_total" && f.Metric[0].Counter.GetValue() == 1 }) {
			t.Error(families, err)
		}
		if err := hives[i].Stop(t.Context()); err != nil {
			t.Error(err)
		}
	}
	lists[0].want(t, "build first", "build hook", "start first", "stop first")
	if got := lists[1].take(); len(got) != 7 || got[0] != "build second" {
		t.Error(got)
	}
}

func TestOneListMakesManyHives(t *testing.T) {
	var d diary
	cells := duty(&d)
	for range 3 {
		h := newHive(cells)
		if err := h.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := h.Stop(t.Context()); err != nil {
			t.Fatal(err)
		}
		d.want(t, "build hello", "build hook", "start hello", "stop hello")
	}
}

func TestRunStopsWhenItsContextEnds(t *testing.T) {
	var d diary
	ctx, cancel := context.WithCancel(t.Context())
	up := make(chan struct{})
	err := newHive(cell.Module("a", "Ends it", cell.Hook("x", func() lifecycle.Hook {
		return lifecycle.Funcs{
			OnStart: func(context.Context) error { d.add("start"); close(up); return nil },
			OnStop: func(ctx context.Context) error {
				d.add(fmt.Sprint("stop ", ctx.Err())) // the hook has time to stop
				return errBroken
			},
		}
	}), cell.Job("end", func() job.Job {
		return job.OneShot(func(context.Context) error { <-up; cancel(); return nil })
	}))).Run(ctx)
	if !errors.Is(err, errBroken) {
		t.Error("the error of stopping is lost:", err)
	}
	d.want(t, "start", "stop <nil>")
}

func TestRunToldToStopWhileStarting(t *testing.T) {
	var d diary
	ctx, cancel := context.WithCancel(t.Context())
	err := newHive(cell.Set(
		cell.Module("a", "Starts", cell.Provide(func() *value { return &value{} }), cell.Hook("a", func(*value) lifecycle.Hook { return d.hook("a") })),
		cell.Module("b", "Is interrupted", cell.Hook("b", func(*value) lifecycle.Hook {
			return lifecycle.Funcs{OnStart: func(ctx context.Context) error { cancel(); <-ctx.Done(); return ctx.Err() }}
		})),
	)).Run(ctx)
	if err != nil {
		t.Error(err)
	}
	d.want(t, "start a", "stop a")
}

func TestShutdownEndsRunWithItsCause(t *testing.T) {
	for name, cause := range map[string]error{"cause": errBroken, "no cause": nil} {
		t.Run(name, func(t *testing.T) {
			var d diary
			err := newHive(cell.Module("a", "Shuts down", cell.Provide(func() *value { return nil }),
				cell.Hook("x", func(*value) lifecycle.Hook { return d.hook("a") }),
				cell.Job("end", func(_ *value, shutdown lifecycle.Shutdown) job.Job { // starts after the hook
					return job.OneShot(func(context.Context) error { shutdown(cause); shutdown(errors.New("too late")); return nil })
				}))).Run(t.Context())
			if !errors.Is(err, cause) || err != nil && err.Error() != cause.Error() {
				t.Error(err)
			}
			d.want(t, "start a", "stop a")
		})
	}
}

func TestShutdownWhileStarting(t *testing.T) {
	err := newHive(cell.Module("a", "Shuts down", cell.Hook("x", func(shutdown lifecycle.Shutdown) lifecycle.Hook {
		return lifecycle.Funcs{OnStart: func(ctx context.Context) error { shutdown(errBroken); <-ctx.Done(); return ctx.Err() }}
	}))).Run(t.Context())
	if !errors.Is(err, errBroken) || err.Error() != "broken" {
		t.Error(err)
	}
}

// CONF-7.
func TestEffectiveOptionsAreLogged(t *testing.T) {
	var d diary
	var out logtest.Buffer
	h := configured(t, hive.New("test", duty(&d), hive.LogTo(&out), noEnvironment), "--greeting=hi", "--log-opt=format=text")
	if err := h.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := h.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		`level=info msg="  --enable='false'" source=default subsys=hive`,
		`level=info msg="  --greeting='hi'" source=flag subsys=hive`,
		`level=info msg="  --log-opt='format=text'" source=flag subsys=hive`,
	} {
		if strings.Count(out.String(), want) != 1 {
			t.Errorf("not there once: %s\n%s", want, out.String())
		}
	}
}

func TestOptionsThatDoNothingAreLoggedIfGiven(t *testing.T) {
	var out logtest.Buffer
	ignored := cell.Module("pending", "Accepts", cell.IgnoredFlags(func(fs *pflag.FlagSet) {
		fs.Bool("some-duty", false, "Not built")
		fs.Bool("other-duty", false, "Not built")
	}))
	h := configured(t, hive.New("test", ignored, hive.LogTo(&out), noEnvironment), "--some-duty", "--log-opt=format=text")
	if err := h.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := h.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(out.String(), `msg="  --some-duty='true'"`) || strings.Contains(out.String(), "other-duty") {
		t.Error(out.String())
	}
}

func TestHooksAreLogged(t *testing.T) {
	var out logtest.Buffer
	h := configured(t, hive.New("test", cell.Module("a", "Has a hook", cell.Hook("x", func() lifecycle.Hook { return nil })), hive.LogTo(&out), noEnvironment), "--debug", "--log-opt=format=text")
	if err := h.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := h.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, phase := range []string{"start", "stop"} {
		if !strings.Contains(out.String(), `level=debug msg="hook done" hook=a.hook-x phase=`+phase+" subsys=hive took=") {
			t.Errorf("no %s in\n%s", phase, out.String())
		}
	}
}

func TestWhatModulesGetIsTheirOwn(t *testing.T) {
	var out logtest.Buffer
	var tree *health.Tree
	use := func(s cell.ModuleInfo, log *slog.Logger, r health.Reporter, b cell.BuildInfo) {
		log.Info("it works", "scope", s.ID, "title", s.Title, "binary", b.Name+" "+b.Version)
		r.OK("fine")
	}
	h := configured(t, hive.New("test", cell.Set(watching(&tree),
		cell.Module("a", "Is outside", cell.Invoke(use), cell.Module("b", "Is inside", cell.Invoke(use)))),
		hive.LogTo(&out), noEnvironment, hive.Version("1.2")), "--log-opt=format=text")
	if err := h.Build(); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		`level=info msg="it works" binary="test 1.2" scope=a subsys=a title="Is outside"`,
		`level=info msg="it works" binary="test 1.2" scope=a.b subsys=a.b title="Is inside"`,
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %s in\n%s", want, out.String())
		}
	}
	wantHealth(t, tree, "OK a: fine", "OK a.b: fine")
}

func TestStartUpProfile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "profile.json")
	var d diary
	var term lifecycle.Term
	h := configured(t, newHive(cell.Set(duty(&d), entering(&term),
		cell.Term("leader", cell.Module("inner", "Is in the term", cell.Hook("x", func() lifecycle.Hook { return nil }))))), "--profile-startup="+file)
	if err := h.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := term.Enter(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := h.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var entries []hive.ProfileEntry
	if err := json.Unmarshal(text, &entries); err != nil {
		t.Fatal(err)
	}
	seen := map[string]int{}
	for _, e := range entries {
		if e.MS < 0 || e.AtMS < -0.001 {
			t.Errorf("%+v", e)
		}
		seen[strings.TrimSpace(e.Phase+" "+e.Name+" "+e.Term)]++
	}
	for _, want := range []string{"declare", "configure", "select", "validate", "build", "start", "hook duty.hook-greet", "constructor greet", "hook inner.hook-x leader", "build  leader"} {
		if seen[want] != 1 {
			t.Errorf("%q is there %d times in %v", want, seen[want], seen)
		}
	}
}

func TestAProfileThatCannotBeWrittenIsAWarning(t *testing.T) {
	var d diary
	var out logtest.Buffer
	h := configured(t, hive.New("test", duty(&d), hive.LogTo(&out), noEnvironment), "--profile-startup="+filepath.Join(t.TempDir(), "no", "such"))
	if err := h.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := h.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(out.String(), "cannot write the start-up profile") {
		t.Error(out.String())
	}
}

func TestALogThatCannotBeConfiguredFailsTheBuild(t *testing.T) {
	h := configured(t, newHive(cell.Set()), "--log-driver=syslog", "--log-opt=syslog.network=unixgram,syslog.address=/nowhere")
	for range 2 {
		if err := h.Start(t.Context()); err == nil || !strings.Contains(err.Error(), "syslog") {
			t.Error(err)
		}
		if err := h.Stop(t.Context()); err != nil {
			t.Error(err)
		}
	}
}

// Rules and Validate methods of disabled modules are not asked; conditions and
// flags are.
func TestDisabledModulesAreNotValidated(t *testing.T) {
	cells := cell.Set(
		cell.Module("switch", "Has the switch", cell.Config(settings{Greeting: "hello"})),
		cell.Module("off", "Is off", cell.EnabledBy(enabled), cell.Config(strictly{}), cell.Validate(func(strictly) error { return errBroken })))
	if err := newHive(cells).Check(); err != nil {
		t.Error(err)
	}
	err := configured(t, newHive(cells), "--enable").Check()
	report := new(config.Report)
	if !errors.As(err, &report) || len(report.Problems) != 2 {
		t.Error(err)
	}
}

type strictly struct{ Strictly bool }

func (strictly) Flags(fs *pflag.FlagSet) { fs.Bool("strictly", false, "Be strict") }
func (strictly) Validate() error         { return cell.Invalid("strictly", "must be set") }

func TestErrorsOfRulesAreTakenApart(t *testing.T) {
	rule := func(settings) error {
		return fmt.Errorf("two things: %w", errors.Join(cell.Invalid("greeting", "must rhyme"), cell.Invalid("enable", "must be set")))
	}
	err := newHive(cell.Module("m", "Has rules", cell.Config(settings{Greeting: "x"}), cell.Validate(rule),
		cell.Validate(func(settings) error { return errors.Join(errBroken, nil) }))).Check()
	want := `3 problems in the configuration:
  --greeting="x" (default): must rhyme
  --enable="false" (default): must be set
  m: broken`
	if err == nil || err.Error() != want {
		t.Error(err)
	}
}

func TestFlagsOfReplacedModulesStayAccepted(t *testing.T) {
	var d diary
	list := cell.Set(duty(&d)).
		Replace("duty", cell.Module("second", "Is second", cell.Config(strictlyNot{}))).
		Replace("second", cell.Module("third", "Is third"))
	h := configured(t, newHive(list), "--greeting=hi", "--strictly-not")
	if err := h.Check(); err != nil {
		t.Error(err)
	}
	var ignored []string
	for _, e := range h.Values().Entries() {
		if e.Option != nil && e.Option.Ignored {
			ignored = append(ignored, e.Name+"="+e.Value)
		}
	}
	if diff := cmp.Diff([]string{"enable=", "greeting=hi", "strictly-not=true"}, ignored); diff != "" {
		t.Error(diff)
	}
	if h.FlagSet().Lookup("greeting").Hidden == false {
		t.Error("help shows an option that does nothing")
	}
	if fs := newHive(cell.Set(duty(&d)).Without("duty")).FlagSet(); fs.Lookup("greeting") != nil {
		t.Error("a module that is gone has flags")
	}
}

type strictlyNot struct{ StrictlyNot bool }

func (strictlyNot) Flags(fs *pflag.FlagSet) { fs.Bool("strictly-not", false, "Be lax") }
