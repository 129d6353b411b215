// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package k8s

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"
	"k8s.io/klog/v2"

	"github.com/skep-operator/skep/resources/clustertest"
	"github.com/skep-operator/skep/resources/leading"
	"github.com/skep-operator/skep/runtime/cell"
	"github.com/skep-operator/skep/runtime/cell/celltest"
	"github.com/skep-operator/skep/runtime/config"
	"github.com/skep-operator/skep/runtime/health"
	"github.com/skep-operator/skep/runtime/hive"
	"github.com/skep-operator/skep/runtime/lifecycle"
	"github.com/skep-operator/skep/runtime/logging/logtest"
)

func TestCell(t *testing.T) {
	celltest.Check(t, Cell, celltest.Args("--k8s-api-server=http://127.0.0.1:1"), celltest.OffArgs("--enable-k8s=false"))
}

// The client's part of the contract's table of flags, K8S-2, K8S-4 and K8S-5.
func TestFlagsAreThoseOfTheContract(t *testing.T) {
	fs := pflag.NewFlagSet("", pflag.ContinueOnError)
	config.TagFlags(fs, reflect.ValueOf(DefaultConfig))
	got := map[string]string{}
	fs.VisitAll(func(f *pflag.Flag) { got[f.Name] = f.Value.Type() + " " + f.DefValue })
	want := map[string]string{
		"enable-k8s":                       "bool true",
		"enable-k8s-api-discovery":         "bool false",
		"k8s-api-server":                   "string ",
		"k8s-api-server-urls":              "stringSlice ",
		"k8s-kubeconfig-path":              "string ",
		"k8s-client-connection-timeout":    "duration 30s",
		"k8s-client-connection-keep-alive": "duration 30s",
		"k8s-heartbeat-timeout":            "duration 30s",
		"operator-k8s-client-qps":          "float32 100",
		"operator-k8s-client-burst":        "int 200",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// operator has one module in the process and one in a term that it enters when
// asked.
type operator struct {
	hive    *hive.Hive
	health  *health.Tree
	log     logtest.Buffer
	process Client
	duty    Client
	leading leading.Session
	term    lifecycle.Term
}

type handles struct {
	cell.In

	Client  Client
	Leading leading.Session
	Term    lifecycle.Term `name:"leader"`
	Health  *health.Tree
}

func startOperator(t *testing.T, args ...string) *operator {
	t.Helper()
	o := &operator{}
	process := cell.Module("test.process", "Lives with the process", cell.Invoke(func(h handles) {
		o.process, o.leading, o.term, o.health = h.Client, h.Leading, h.Term, h.Health
	}))
	duty := cell.Module("test.duty", "Lives in the term", cell.Invoke(func(c Client) { o.duty = c }))
	o.hive = hive.New("operator", cell.Set(Cell, process, cell.Term("leader", duty)),
		hive.LogTo(&o.log), hive.Version("1.2.3"), hive.Environ(func(string) (string, bool) { return "", false }))
	fs := o.hive.FlagSet()
	if err := fs.Parse(args); err != nil {
		t.Fatal(err)
	}
	if err := o.hive.Configure(fs); err != nil {
		t.Fatal(err)
	}
	if err := o.hive.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := o.hive.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return o
}

func (o *operator) enter(t *testing.T) *leading.Fence {
	t.Helper()
	f := leading.NewFence(leading.SystemClock, leading.SystemClock.Now(), time.Hour)
	t.Cleanup(f.Close)
	if err := o.leading.Open(f, nil); err != nil {
		t.Fatal(err)
	}
	if err := o.term.Enter(t.Context()); err != nil {
		t.Fatal(err)
	}
	return f
}

func (o *operator) status(id string) (s health.Status) {
	for _, s := range o.health.Snapshot() {
		if s.ID == id {
			return s
		}
	}
	return s
}

func TestEveryModuleHasAClientOfItsOwnAndOnlyTheTermWrites(t *testing.T) {
	t.Setenv(StrictCause, "1")
	cluster := clustertest.Shared(t)
	proxy, namespace := cluster.NewProxy(t), newNamespace(t, cluster)
	o := startOperator(t, "--k8s-kubeconfig-path="+proxy.Kubeconfig())
	first := o.enter(t)
	old := o.duty
	if _, err := o.process.Create(why(t), configMaps, newConfigMap(namespace, "p", nil)); !errors.Is(err, ErrReadOnly) {
		t.Errorf("a write of the process: %v", err)
	}
	if _, err := old.Create(why(t), configMaps, newConfigMap(namespace, "x", nil)); err != nil {
		t.Errorf("a write of the term: %v", err)
	}
	if _, err := o.process.Get(t.Context(), Ref{Resource: configMaps, Namespace: namespace, Name: "x"}); err != nil {
		t.Error(err)
	}
	if err := o.term.Leave(t.Context()); err != nil {
		t.Fatal(err)
	}
	first.Close()
	o.enter(t)
	if _, err := old.Create(why(t), configMaps, newConfigMap(namespace, "y", nil)); !errors.Is(err, leading.ErrFenced) {
		t.Errorf("a write of the former term: %v", err)
	}
	if _, err := o.duty.Create(why(t), configMaps, newConfigMap(namespace, "y", nil)); err != nil {
		t.Errorf("a write of the present term: %v", err)
	}
	agents := map[string][]string{}
	for _, r := range proxy.Requests(t, 0) {
		if r.Namespace == namespace {
			agents[r.UserAgent] = append(agents[r.UserAgent], r.Verb)
		}
	}
	want := map[string][]string{"skep/1.2.3 (test.process)": {"get"}, "skep/1.2.3 (test.duty)": {"create", "create"}}
	if diff := cmp.Diff(want, agents); diff != "" {
		t.Error(diff)
	}
}

func TestAnAPIServerThatIsAwayAtStartIsWaitedForDegraded(t *testing.T) {
	cluster := clustertest.Shared(t)
	proxy := cluster.NewProxy(t, clustertest.Link{Refuse: true})
	o := startOperator(t, "--k8s-kubeconfig-path="+proxy.Kubeconfig())
	until(t, "it is degraded, and says why", func() bool {
		s := o.status("k8s.job-connect")
		return s.Level == health.Degraded && strings.Contains(s.Error, "connection refused")
	})
	proxy.Heal(t)
	o.log.Wait(t, "connected to the API server")
	until(t, "nothing is degraded", func() bool { return len(o.health.Degraded()) == 0 })
	if n := o.log.Count("level=warn"); n != 1 {
		t.Errorf("%d warnings while it waited, want one:\n%s", n, o.log.String())
	}
}

func TestAnAPIServerThatGoesAwayLaterDegradesAndComesBack(t *testing.T) {
	cluster := clustertest.Shared(t)
	proxy := cluster.NewProxy(t)
	o := startOperator(t, "--k8s-kubeconfig-path="+proxy.Kubeconfig(), "--k8s-heartbeat-timeout=200ms")
	o.log.Wait(t, "connected to the API server")
	proxy.Refuse(t)
	proxy.Cut(t)
	until(t, "the heartbeat tells", func() bool { return o.status("k8s.job-heartbeat").Level == health.Degraded })
	if connected(t.Context(), o.process) {
		t.Error("a server that refuses answers")
	}
	proxy.Heal(t)
	until(t, "the heartbeat is fine", func() bool { return o.status("k8s.job-heartbeat").Level == health.OK })
	until(t, "the server answers again", func() bool { return connected(t.Context(), o.process) })
}

// LEAD-2 and the health check ask for it.
func TestTheServerTellsItsVersion(t *testing.T) {
	d := openTransport(t, through(clustertest.Shared(t).Kubeconfig()))
	info, err := newServer(d).Version(t.Context())
	if err != nil || info.GitVersion == "" || info.GoVersion == "" {
		t.Errorf("%v, %v", info, err)
	}
	if got, want := newServer(d).Address(), d.servers.urls[0].String(); got != want {
		t.Errorf("address %s, want %s", got, want)
	}
}

func debug(w io.Writer) *slog.Logger {
	return slog.New(slog.NewTextHandler(w, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

// Several operators live in one process, and log while others start.
func TestLibrariesLogToTheOperatorThatStartedLast(t *testing.T) {
	var first, last logtest.Buffer
	quietLibraries(debug(&first))
	klog.Error("one")
	quietLibraries(debug(&last))
	klog.Error("two")
	if text := first.String(); !strings.Contains(text, "level=DEBUG msg=one") || strings.Contains(text, "two") {
		t.Errorf("the first operator got %q", text)
	}
	if text := last.String(); !strings.Contains(text, "level=DEBUG msg=two") || strings.Contains(text, "one") {
		t.Errorf("the last operator got %q", text)
	}
}
