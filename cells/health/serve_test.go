// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package health

import (
	"io"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/google/gops/signal"

	"github.com/skep-operator/skep/cells/health/internal/api"
	"github.com/skep-operator/skep/cells/health/internal/debug"
	"github.com/skep-operator/skep/cells/health/internal/httpserver"
	"github.com/skep-operator/skep/cells/health/internal/prometheus"
	"github.com/skep-operator/skep/cells/health/internal/status"
	"github.com/skep-operator/skep/runtime/health"
	"github.com/skep-operator/skep/runtime/metrics"
)

// API-11: a port that is taken degrades its server until it is free, and
// nothing else.
func TestPortInUse(t *testing.T) {
	t.Setenv("HOME", t.TempDir()) // where gops keeps its file
	var ports []string
	var releases []func()
	for range 4 {
		port, release := occupy(t)
		ports, releases = append(ports, port), append(releases, release)
	}
	o := start(t, "--operator-api-serve-addr=127.0.0.1:"+ports[0], "--enable-metrics", "--operator-prometheus-serve-addr=127.0.0.1:"+ports[1],
		"--operator-pprof", "--operator-pprof-address=127.0.0.1", "--operator-pprof-port="+ports[2], "--enable-gops", "--gops-port="+ports[3])
	servers := []string{"api", "metrics", "pprof", "gops"}
	for _, name := range servers {
		s := o.status(name)
		if s.Level != health.Degraded || s.Message != "not served; tried every 5s" || !strings.Contains(s.Error, "address already in use") {
			t.Errorf("%s reports %+v", name, s)
		}
	}
	for _, release := range releases {
		release()
	}
	for i, name := range servers {
		if got, want := o.address(name), "127.0.0.1:"+ports[i]; got != want {
			t.Errorf("%s is served at %s, want %s", name, got, want)
		}
	}
	if got := o.get("/v1/livez"); got.code != 200 {
		t.Errorf("GET /v1/livez: %+v", got)
	}
	for _, logged := range []string{"cannot listen, retrying", "gops agent unavailable, retrying"} {
		if n, want := o.log.Count(logged), map[bool]int{true: 3, false: 1}[logged == "cannot listen, retrying"]; n != want {
			t.Errorf("%q is logged %d times, want %d:\n%s", logged, n, want, o.log)
		}
	}
}

// Two operators that want one port: the second waits for its turn.
func TestSecondOperator(t *testing.T) {
	first := start(t)
	second := start(t, "--operator-api-serve-addr="+first.address("api"))
	if s := second.status("api"); s.Level != health.Degraded {
		t.Errorf("the second one reports %+v", s)
	}
	first.stop()
	second.address("api")
}

// Several addresses are one report: one that is taken is not hidden by one that
// is not.
func TestOneOfTwoTaken(t *testing.T) {
	port, _ := occupy(t)
	tree := health.NewTree()
	s := httpserver.New("both", httpserver.Common, httpserver.Router{}, discard, tree.Reporter("health"), httpserver.TCP("127.0.0.1:"+port), httpserver.TCP("127.0.0.1:0"))
	if err := s.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := tree.Snapshot()[0]; got.Level != health.Degraded || !strings.Contains(got.Error, port) {
		t.Errorf("reported is %+v", got)
	}
	if err := s.Stop(t.Context()); err != nil {
		t.Error(err)
	}
}

// A client that keeps its request open does not hold the end up for long.
func TestStopWithOpenRequest(t *testing.T) {
	tree := health.NewTree()
	open, release := make(chan struct{}), make(chan struct{})
	defer close(release)
	s := httpserver.New("slow", httpserver.Common, httpserver.Router{"/": func(http.ResponseWriter, *http.Request) { close(open); <-release }}, discard, tree.Reporter("health"), httpserver.TCP("127.0.0.1:0"))
	if err := s.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	asked := make(chan error, 1)
	go func() {
		_, err := request(t, newClient(), http.MethodGet, "http://"+s.Addresses()+"/")
		asked <- err
	}()
	<-open
	if err := s.Stop(t.Context()); err != nil {
		t.Error(err)
	}
	if err := <-asked; err == nil {
		t.Error("the request was answered")
	}
}

func TestPprof(t *testing.T) {
	o := start(t, "--operator-pprof", "--operator-pprof-address=127.0.0.1", "--operator-pprof-mutex-profile-fraction=7", "--operator-pprof-block-profile-rate=1000")
	for _, path := range []string{"/debug/pprof/", "/debug/pprof/cmdline", "/debug/pprof/goroutine?debug=1", "/debug/pprof/mutex?debug=1"} {
		if got := o.ask(http.MethodGet, "pprof", path); got.code != 200 || got.body == "" {
			t.Errorf("GET %s: %d, %d bytes", path, got.code, len(got.body))
		}
	}
	if got := runtime.SetMutexProfileFraction(-1); got != 7 {
		t.Errorf("one in %d events goes into the mutex profile", got)
	}
	o.stop()
	if got := runtime.SetMutexProfileFraction(-1); got != 0 {
		t.Errorf("after the end one in %d events goes into the mutex profile", got)
	}
}

func TestPprofOff(t *testing.T) {
	o := start(t)
	if s := o.status("pprof"); s.Reports != 0 {
		t.Errorf("it reports %+v", s)
	}
}

func TestGops(t *testing.T) {
	t.Setenv("HOME", t.TempDir())
	first := start(t, "--enable-gops", "--gops-port=0")
	if s := first.status("gops"); s.Level != health.OK {
		t.Fatalf("it reports %+v", s)
	}
	t.Run("there is one per process", func(t *testing.T) {
		second := start(t, "--enable-gops", "--gops-port=0")
		if s := second.status("gops"); s.Level != health.Degraded || s.Error != "another operator of this process runs the agent" {
			t.Errorf("the second one reports %+v", s)
		}
	})
	first.stop()
	port, release := occupy(t)
	release()
	again := start(t, "--enable-gops", "--gops-port="+port)
	conn, err := net.Dial("tcp", again.address("gops"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := conn.Write([]byte{signal.Version}); err != nil {
		t.Fatal(err)
	}
	if text, err := io.ReadAll(conn); err != nil || strings.TrimSpace(string(text)) != runtime.Version() {
		t.Errorf("it says %q, %v", text, err)
	}
}

// Where gops cannot keep its file, it is tried on, and nothing else suffers.
func TestGopsWithoutHome(t *testing.T) {
	t.Setenv("HOME", "/dev/null")
	t.Setenv("GOPS_CONFIG_DIR", filepath.Join("/dev/null", "gops"))
	o := start(t, "--enable-gops", "--gops-port=0")
	if s := o.status("gops"); s.Level != health.Degraded || s.Error == "" {
		t.Errorf("it reports %+v", s)
	}
	if got := o.get("/v1/livez"); got.code != 200 {
		t.Errorf("GET /v1/livez: %+v", got)
	}
}

// API-16: every server has limits.
func TestEveryServerHasLimits(t *testing.T) {
	log, h := slog.New(slog.DiscardHandler), health.NewTree().Reporter("health")
	c := defaults
	c.EnableMetrics, c.OperatorPprof = true, true
	for name, hook := range map[string]any{
		"api":     api.New(c.apiConfig, true, api.NewCheck(api.CheckParams{}), status.New(status.Params{}), log, h),
		"metrics": prometheus.NewServer(c.prometheusConfig, prometheus.NewMetrics(metrics.Factory{}), metrics.NewRegistry(), log, h),
		"pprof":   debug.NewPprof(c.pprofConfig, log, h),
		"socket":  status.NewSocket(c.socketConfig, status.New(status.Params{}), log, h),
	} {
		s := hook.(*httpserver.Server).HTTP()
		if lasting := name == "pprof" || name == "socket"; lasting != (s.WriteTimeout == 0) {
			t.Errorf("%s: answers may take %s", name, s.WriteTimeout)
		}
		if s.ReadHeaderTimeout == 0 || s.ReadTimeout == 0 || s.IdleTimeout == 0 || s.MaxHeaderBytes == 0 || s.ConnState == nil {
			t.Errorf("%s: header %s, body %s, idle %s, %d bytes of headers, connections bounded: %v", name,
				s.ReadHeaderTimeout, s.ReadTimeout, s.IdleTimeout, s.MaxHeaderBytes, s.ConnState != nil)
		}
	}
}
