// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package health

import (
	"context"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/skep-operator/skep/resources/clustertest"
	"github.com/skep-operator/skep/resources/k8s"
	"github.com/skep-operator/skep/resources/leading"
	"github.com/skep-operator/skep/resources/operatortest"
	"github.com/skep-operator/skep/runtime/cell"
	"github.com/skep-operator/skep/runtime/cell/celltest"
	"github.com/skep-operator/skep/runtime/health"
	"github.com/skep-operator/skep/runtime/hive"
	"github.com/skep-operator/skep/runtime/lifecycle"
	"github.com/skep-operator/skep/runtime/logging/logtest"
	"github.com/skep-operator/skep/runtime/waittest"
)

func TestMain(m *testing.M) { waittest.Main(clustertest.Wrap(m)) }

func TestCell(t *testing.T) {
	celltest.Check(t, Cell, celltest.With(k8s.Cell), celltest.Args(
		"--k8s-api-server="+nowhere, "--operator-api-serve-addr=127.0.0.1:0", "--enable-metrics", "--operator-prometheus-serve-addr=127.0.0.1:0",
		"--operator-pprof", "--operator-pprof-port=0", "--gops-port=0", "--operator-sock-path="+socketPath(t)))
}

// nowhere is an API server that is away.
const nowhere = "http://127.0.0.1:1"

// socketPath is short enough for a socket wherever tests run.
func socketPath(t *testing.T) string {
	t.Helper()
	return filepath.Join(t.TempDir(), "s")
}

// fakeElection is what the cell that holds the lease would provide.
type fakeElection struct {
	mu     sync.Mutex
	status leading.ElectionStatus
}

func (f *fakeElection) Status() leading.ElectionStatus {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.status
}

func (f *fakeElection) set(s leading.ElectionStatus) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.status = s
}

// operator is a running hive with the cell.
type operator struct {
	t        *testing.T
	hive     *hive.Hive
	health   *health.Tree
	election *fakeElection
	log      *logtest.Buffer
	socket   string
}

type handle struct {
	cell.In

	Term lifecycle.Term `name:"leader"`
}

// cells are the cell under test and what it shows: a duty, one that is off, and
// a table that a module adds.
func (o *operator) cells() cell.Cells {
	never := cell.EnabledBy(cell.When("pigs fly", []string{"gops-port"}, func(Config) bool { return false }))
	return cell.Set(k8s.Cell, Cell,
		cell.Module("test.election", "Provides an election",
			cell.Provide(func() leading.Election { return o.election }),
			cell.Invoke(func(tree *health.Tree) { o.health = tree }),
			cell.Hook("term", func(h handle) lifecycle.Hook { return lifecycle.Funcs{OnStart: h.Term.Enter, OnStop: h.Term.Leave} })),
		cell.Module("test.rows", "Adds a table", cell.Provide(newRows)),
		cell.Term("leader",
			cell.Module("duty", "Does something for the cluster"),
			cell.Module("other", "Does something else", never)))
}

type rowsOut struct {
	cell.Out

	Section health.Section `group:"status sections"`
}

func newRows() rowsOut {
	return rowsOut{Section: health.Section{Title: "Streams", Columns: []string{"STREAM", "LAG"}, Rows: func() [][]string {
		return [][]string{{"pods", "12ms"}}
	}}}
}

// declare makes an operator that serves at free ports, but for the options
// given, which come last and win.
func declare(t *testing.T, args ...string) (*operator, error) {
	t.Helper()
	o := &operator{t: t, election: &fakeElection{}, log: &logtest.Buffer{}, socket: socketPath(t)}
	o.hive = hive.New("operator", o.cells(), hive.MetricsNamespace("cilium_operator"), hive.LogTo(o.log), hive.Version("1.2.3"),
		hive.Environ(func(string) (string, bool) { return "", false }))
	flags := o.hive.FlagSet()
	defaults := map[string]string{
		"k8s-api-server": nowhere, "operator-api-serve-addr": "127.0.0.1:0", "operator-prometheus-serve-addr": "127.0.0.1:0",
		"operator-pprof-port": "0", "enable-gops": "false", "operator-sock-path": o.socket,
	}
	for _, a := range args {
		name, _, _ := strings.Cut(strings.TrimPrefix(a, "--"), "=")
		delete(defaults, name)
	}
	for name, value := range defaults {
		args = append(args, "--"+name+"="+value)
	}
	if err := flags.Parse(args); err != nil {
		t.Fatal(err)
	}
	_ = o.hive.Configure(flags)
	return o, o.hive.Check()
}

func start(t *testing.T, args ...string) *operator {
	t.Helper()
	o, err := declare(t, args...)
	if err != nil {
		t.Fatal(err)
	}
	if err := o.hive.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(o.stop)
	return o
}

func (o *operator) stop() {
	if err := o.hive.Stop(context.Background()); err != nil {
		o.t.Error(err)
	}
}

// status is what a part of the cell reports.
func (o *operator) status(part string) health.Status {
	for _, s := range o.health.Snapshot() {
		if s.ID == "health."+part {
			return s
		}
	}
	return health.Status{}
}

// address is where a server serves, once it does.
func (o *operator) address(server string) string {
	o.t.Helper()
	var address string
	operatortest.Eventually(o.t, server+" is served", func() bool {
		s := o.status(server)
		address, _ = strings.CutPrefix(s.Message, "serving at ")
		return s.Level == health.OK
	})
	return address
}

// answer is an HTTP answer.
type answer struct {
	code        int
	contentType string
	body        string
}

// request asks, and follows nothing.
func request(t *testing.T, client *http.Client, method, url string) (answer, error) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	return send(client, req)
}

func send(client *http.Client, req *http.Request) (answer, error) {
	resp, err := client.Do(req)
	if err != nil {
		return answer{}, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return answer{resp.StatusCode, resp.Header.Get("Content-Type"), string(body)}, err
}

func newClient() *http.Client {
	return &http.Client{
		Transport:     &http.Transport{DisableKeepAlives: true},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

func (o *operator) ask(method, server, path string) answer {
	o.t.Helper()
	a, err := request(o.t, newClient(), method, "http://"+o.address(server)+path)
	if err != nil {
		o.t.Fatal(err)
	}
	return a
}

func (o *operator) get(path string) answer { return o.ask(http.MethodGet, "api", path) }

// occupy takes a free port until release, or until the test ends.
func occupy(t *testing.T) (port string, release func()) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	_, port, _ = net.SplitHostPort(l.Addr().String())
	return port, func() { l.Close() }
}
