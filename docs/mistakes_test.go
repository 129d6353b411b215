// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package docs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spf13/pflag"
	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/skep-operator/skep/resources/cluster"
	"github.com/skep-operator/skep/resources/k8s"
	"github.com/skep-operator/skep/runtime/cell"
	"github.com/skep-operator/skep/runtime/hive"
	"github.com/skep-operator/skep/runtime/job"
	"github.com/skep-operator/skep/runtime/lifecycle"
	"github.com/skep-operator/skep/runtime/logging/logtest"
	"github.com/skep-operator/skep/runtime/waittest"
)

// What mistakes.md shows as bad, and what is reported.

// sayings is what binaries say of mistakes, and of other lists of cells, by name.
var sayings = map[string]func(t *testing.T) string{
	"flag":      func(t *testing.T) string { return said(t, cell.Set(cluster.Cell(cluster.DefaultConfig), ownFlag)) },
	"validate":  func(t *testing.T) string { return said(t, lateCheck, "--workers=-1") },
	"validated": func(t *testing.T) string { return said(t, earlyCheck, "--workers=-1") },
	"switch":    func(t *testing.T) string { return said(t, cell.Set(switched, user), "--store=false") },
	"private":   func(t *testing.T) string { return said(t, cell.Set(hoarder, borrower)) },
	"term":      func(t *testing.T) string { return said(t, cell.Set(entering, cell.Term("leader", counting), reading)) },
	"order":     func(t *testing.T) string { return said(t, cell.Set(hen, egg)) },
	"replaced":  func(t *testing.T) string { return said(t, incomplete, "--ipam=kubernetes") },
	"vendor":    vendorCells,
	"readonly":  writeInProcess,
	"hang":      hang,
}

// said is what an operator of a list says that cannot start.
func said(t *testing.T, set cell.Cell, args ...string) string {
	t.Helper()
	h := quiet(t, set, args...)
	err := errors.Join(h.Check())
	if err == nil {
		err = h.Build()
	}
	if err == nil {
		t.Fatal("nothing is wrong")
	}
	return tidy(err.Error() + "\n")
}

func quiet(t *testing.T, set cell.Cell, args ...string) *hive.Hive {
	t.Helper()
	h := hive.New("operator", set, hive.LogTo(io.Discard), hive.Environ(func(string) (string, bool) { return "", false }))
	flags := h.FlagSet()
	if err := errors.Join(flags.Parse(args), h.Configure(flags)); err != nil {
		t.Fatal(err)
	}
	return h
}

// region flag

type ownConfig struct{ ClusterName string }

func (c ownConfig) Flags(fs *pflag.FlagSet) {
	fs.String("cluster-name", c.ClusterName, "Name of the cluster")
}

var ownFlag = cell.Module("greeter", "Greets the cluster",
	cell.Config(ownConfig{ClusterName: "default"}), // --cluster-name has an owner
	cell.Hook("greet", func(c ownConfig) lifecycle.Hook { return greet(c.ClusterName) }),
)

// endregion

// region flag-good

var sharedFlag = cell.Module("greeter", "Greets the cluster",
	cell.Hook("greet", func(c cluster.Config) lifecycle.Hook { return greet(c.ClusterName) }),
)

// endregion

func greet(string) lifecycle.Hook { return lifecycle.Funcs{} }

type pool struct{ workers int }

func use(*pool) lifecycle.Hook { return lifecycle.Funcs{} }

type lateConfig struct{ Workers int }

func (c lateConfig) Flags(fs *pflag.FlagSet) { fs.Int("workers", c.Workers, "Workers at once") }

// region validate

var lateCheck = cell.Module("pool", "Works at several things at once",
	cell.Config(lateConfig{Workers: 4}),
	cell.Provide(func(c lateConfig) (*pool, error) {
		if c.Workers < 1 {
			return nil, errors.New("bad number of workers")
		}
		return &pool{c.Workers}, nil
	}),
	cell.Hook("serve", use),
)

// endregion

type earlyConfig struct{ Workers int }

func (c earlyConfig) Flags(fs *pflag.FlagSet) { fs.Int("workers", c.Workers, "Workers at once") }

// region validate-good

func (c earlyConfig) Validate() error {
	if c.Workers < 1 {
		return cell.Invalid("workers", "must be at least 1")
	}
	return nil
}

// endregion

var earlyCheck = cell.Module("pool", "Works at several things at once",
	cell.Config(earlyConfig{Workers: 4}),
	cell.Provide(func(c earlyConfig) *pool { return &pool{c.Workers} }),
	cell.Hook("serve", use),
)

type storeConfig struct{ Store bool }

func (c storeConfig) Flags(fs *pflag.FlagSet) { fs.Bool("store", c.Store, "Keep things in the store") }

type store struct{}

func openStore() *store               { return &store{} }
func needStore(*store) lifecycle.Hook { return lifecycle.Funcs{} }

// region switch

var nilSwitch = cell.Module("store", "Keeps things",
	cell.Config(storeConfig{Store: true}),
	cell.Provide(func(c storeConfig) *store {
		if !c.Store {
			return nil // and everybody who asks must know
		}
		return openStore()
	}),
)

// endregion

// region switch-good

var switched = cell.Module("store", "Keeps things",
	cell.Config(storeConfig{Store: true}),
	cell.EnabledBy(cell.When("the store is in use", []string{"store"}, func(c storeConfig) bool { return c.Store })),
	cell.Provide(openStore),
)

// endregion

var user = cell.Module("user", "Uses what is kept", cell.Hook("use", needStore))

// TestNilInsteadOfACondition shows the reason for the rule: nothing tells the one
// who asks.
func TestNilInsteadOfACondition(t *testing.T) {
	var got = new(store)
	h := quiet(t, cell.Set(nilSwitch, cell.Invoke(func(s *store) { got = s })), "--store=false")
	if err := h.Build(); err != nil || got != nil {
		t.Errorf("%v, %v", got, err)
	}
}

// TestGoodExamples checks that nothing is wrong with what is shown as good.
func TestGoodExamples(t *testing.T) {
	for name, list := range map[string]cell.Cell{
		"shared flag": cell.Set(cluster.Cell(cluster.DefaultConfig), sharedFlag),
		"validation":  earlyCheck,
		"condition":   cell.Set(switched, user),
		"job":         ticking,
	} {
		if err := quiet(t, list).Check(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// region private

var hoarder = cell.Module("store", "Keeps things",
	cell.ProvidePrivate(openStore),
	cell.Hook("serve", needStore),
)

var borrower = cell.Module("borrower", "Takes what is kept",
	cell.Hook("take", needStore),
)

// endregion

type counter struct{}

func newCounter() *counter              { return &counter{} }
func count(*counter) lifecycle.Hook     { return lifecycle.Funcs{} }
func tellCount(*counter) lifecycle.Hook { return lifecycle.Funcs{} }

var entering = cell.Module("leader", "Enters the term", cell.Hook("enter", func(p struct {
	cell.In
	Term lifecycle.Term `name:"leader"`
}) lifecycle.Hook {
	return lifecycle.Funcs{OnStart: p.Term.Enter, OnStop: p.Term.Leave}
}))

// region term

// in cell.Term("leader", …): made anew at each entry
var counting = cell.Module("counting", "Counts while leading",
	cell.Provide(newCounter),
	cell.Hook("count", count),
)

// in the process: would hold the counter of a term that is over
var reading = cell.Module("reading", "Tells the count",
	cell.Hook("tell", tellCount),
)

// endregion

type (
	henHouse struct{}
	eggBox   struct{}
)

func newHenHouse(*eggBox) *henHouse { return nil }
func newEggBox(*henHouse) *eggBox   { return nil }
func hatch(*eggBox) lifecycle.Hook  { return nil }

// region order

var hen = cell.Module("hen", "Comes first",
	cell.Provide(newHenHouse)) // of an egg box

var egg = cell.Module("egg", "Comes first, too",
	cell.Provide(newEggBox), // of a hen house
	cell.Hook("hatch", hatch))

// endregion

// region write

// in the process: it is not known whether this replica may write
func record(c k8s.Client) job.Job {
	return job.OneShot(func(ctx context.Context) error {
		note := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "note"}}
		_, err := c.Create(ctx, corev1.SchemeGroupVersion.WithResource("configmaps"), note)
		return err
	})
}

// endregion

func writeInProcess(t *testing.T) string {
	t.Helper()
	log := &logtest.Buffer{}
	h := hive.New("operator", cell.Set(k8s.Cell, cell.Module("recorder", "Records", cell.Job("record", record))),
		hive.LogTo(log), hive.Environ(func(string) (string, bool) { return "", false }))
	flags := h.FlagSet()
	if err := errors.Join(flags.Parse([]string{"--k8s-api-server=http://127.0.0.1:1"}), h.Configure(flags), h.Start(t.Context())); err != nil {
		t.Fatal(err)
	}
	log.Wait(t, "subsys=recorder") // the job fails
	if err := h.Stop(context.Background()); err != nil {
		t.Error(err)
	}
	for _, line := range log.Lines() {
		if _, problem, ok := strings.Cut(line, "error="); ok && strings.Contains(line, "subsys=recorder") {
			text, err := strconv.QuotedPrefix(problem)
			if err == nil {
				text, err = strconv.Unquote(text)
			}
			if err != nil {
				t.Fatalf("%v in %s", err, line)
			}
			return text + "\n"
		}
	}
	t.Fatalf("no error in\n%s", log)
	return ""
}

// region leak

var leaking = cell.Module("ticker", "Ticks",
	cell.Provide(func() *ticker {
		t := &ticker{tick: time.NewTicker(time.Minute), end: make(chan struct{})}
		go t.run() // who stops it? and it runs under "operator validate --build", too
		return t
	}),
	cell.Invoke(func(*ticker) {}),
)

// endregion

// region leak-good

var ticking = cell.Module("ticker", "Ticks",
	cell.Job("tick", func() job.Job { return job.Timer(tick, time.Minute) }),
)

// endregion

type ticker struct {
	tick *time.Ticker
	end  chan struct{}
}

func (t *ticker) run() {
	for {
		select {
		case <-t.tick.C:
		case <-t.end:
			return
		}
	}
}

func tick(context.Context) error { return nil }

// TestAConstructorThatStartsSomething shows what is left of each after the stop.
func TestAConstructorThatStartsSomething(t *testing.T) {
	for name, test := range map[string]struct {
		list  cell.Cell
		leaks bool
	}{"bad": {leaking, true}, "good": {ticking, false}} {
		t.Run(name, func(t *testing.T) {
			before := goleak.IgnoreCurrent()
			var made *ticker
			list := test.list
			if test.leaks {
				list = cell.Set(list, cell.Invoke(func(t *ticker) { made = t }))
			}
			h := quiet(t, list)
			if err := errors.Join(h.Start(t.Context()), h.Stop(context.Background())); err != nil {
				t.Fatal(err)
			}
			if made == nil {
				waittest.NoLeaks(t, before)
				return
			}
			if goleak.Find(before) == nil {
				t.Error("nothing is left of what the constructor started")
			}
			close(made.end)
		})
	}
}

// region global

var current *pool // of which operator?

var global = cell.Module("pool", "Works at several things at once",
	cell.Invoke(func() { current = &pool{workers: 4} }),
)

// endregion

// TestAGlobalIsSharedByOperators shows the reason for the rule.
func TestAGlobalIsSharedByOperators(t *testing.T) {
	first, second := quiet(t, global), quiet(t, global)
	if err := first.Build(); err != nil {
		t.Fatal(err)
	}
	of := current
	if err := second.Build(); err != nil {
		t.Fatal(err)
	}
	if current == of {
		t.Error("two operators have a global each")
	}
}

// region hang

func deaf(wake <-chan struct{}) job.Job {
	return job.OneShot(func(ctx context.Context) error {
		<-wake // and if it never comes?
		return nil
	})
}

// endregion

// region hang-good

func hearing(wake <-chan struct{}) job.Job {
	return job.OneShot(func(ctx context.Context) error {
		select {
		case <-wake:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	})
}

// endregion

// hang is what is said of a job that does not stop, and checks that the good one
// does.
func hang(t *testing.T) (text string) {
	t.Helper()
	stop := func(example func(<-chan struct{}) job.Job) (err error) {
		synctest.Test(t, func(t *testing.T) {
			wake := make(chan struct{})
			h := quiet(t, cell.Module("sleeper", "Sleeps", cell.Job("sleep", func() job.Job { return example(wake) })))
			if err := h.Start(t.Context()); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			err = h.Stop(context.Background())
			close(wake)
			synctest.Wait()
		})
		return err
	}
	if err := stop(hearing); err != nil {
		t.Errorf("the good example: %v", err)
	}
	return tidy(fmt.Sprintln(stop(deaf)))
}
