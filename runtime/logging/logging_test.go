// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package logging_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"

	"github.com/skep-operator/skep/runtime/config"
	"github.com/skep-operator/skep/runtime/logging"
	"github.com/skep-operator/skep/runtime/logging/logtest"
	"github.com/skep-operator/skep/runtime/printable/printabletest"
	"github.com/skep-operator/skep/runtime/waittest"
)

func TestMain(m *testing.M) { waittest.Main(m) }

func newLog(t *testing.T, c logging.Config) (*logging.Log, *logtest.Buffer) {
	t.Helper()
	var out logtest.Buffer
	l := logging.New(&out)
	if err := l.Configure(c); err != nil {
		t.Fatal(err)
	}
	return l, &out
}

func opt(pairs ...string) logging.Config {
	c := logging.Config{LogOpt: map[string]string{}}
	for p := range slices.Chunk(pairs, 2) {
		c.LogOpt[p[0]] = p[1]
	}
	return c
}

// CONF-17; number 5.2 of the contract's tenants.md: what others wrote does not fill the log. A stack stays whole.
func TestLongTextsAreCut(t *testing.T) {
	for _, format := range []string{"text", "json"} {
		l, out := newLog(t, opt("format", format))
		long := strings.Repeat("ä", 120_000)
		l.Logger("ipam").Warn("is "+long, "text", long, "error", errors.New(long), "list", []string{long, long}, logging.Stack, long, "n", 3)
		if lines := out.Lines(); len(lines) != 1 || strings.Count(lines[0], "…") != 4 || len(lines[0]) > len(long)+4*1200 || !strings.Contains(lines[0], long) {
			t.Errorf("%s: %d lines, the first of %d bytes", format, len(lines), len(lines[0]))
		}
	}
}

func TestFormats(t *testing.T) {
	for format, want := range map[string]string{
		"":        `^time="[-0-9]+T[:.0-9]+(Z|[-+:0-9]+)" level=info msg="it works" n=3 subsys=ipam\.clusterpool$`,
		"text-ts": `^time="[-0-9]+T[:.0-9]+(Z|[-+:0-9]+)" level=info msg="it works" n=3 subsys=ipam\.clusterpool$`,
		"text":    `^level=info msg="it works" n=3 subsys=ipam\.clusterpool$`,
		"json":    `^\{"level":"info","msg":"it works","n":3,"subsys":"ipam\.clusterpool"\}$`,
		"json-ts": `^\{"level":"info","msg":"it works","n":3,"subsys":"ipam\.clusterpool","time":"[-0-9]+T[:.0-9]+(Z|[-+:0-9]+)"\}$`,
	} {
		l, out := newLog(t, opt("format", format))
		l.Logger("ipam.clusterpool").Info("it works", "n", 3)
		if got := out.Lines(); len(got) != 1 || !regexp.MustCompile(want).MatchString(got[0]) {
			t.Errorf("%s: %q, want %s", format, got, want)
		}
	}
}

func TestUnknownFormatIsAWarningAndTheDefault(t *testing.T) {
	l, out := newLog(t, opt("format", "xml"))
	l.Logger("m").Info("it works")
	got := out.Lines()
	if len(got) != 2 || !strings.Contains(got[0], `level=warning msg="log-opt format is unknown, using text-ts" format=xml subsys=logging`) ||
		!strings.HasPrefix(got[1], `time=`) {
		t.Errorf("%q", got)
	}
}

func TestUnknownLevelIsAWarningAndTheDefault(t *testing.T) {
	l, out := newLog(t, opt("level", "loud"))
	l.Logger("m").Info("shown")
	l.Logger("m").Debug("hidden")
	got := out.Lines()
	if len(got) != 2 || !strings.Contains(got[0], `msg="log-opt level is unknown, using info"`) || !strings.Contains(got[0], "loud") {
		t.Errorf("%q", got)
	}
}

func TestUnknownKeysAreNamedInOrder(t *testing.T) {
	_, out := newLog(t, opt("zone", "1", "colour", "2"))
	got := out.Lines()
	if len(got) != 2 || !strings.Contains(got[0], "key=colour") || !strings.Contains(got[1], "key=zone") {
		t.Errorf("%q", got)
	}
}

func TestLevels(t *testing.T) {
	for _, c := range []struct {
		config logging.Config
		want   string
	}{
		{opt(), "info warn error"},
		{opt("level", "warning"), "warn error"},
		{opt("level", "error"), "error"},
		{opt("level", "panic"), ""},
		{opt("level", "debug"), "debug info warn error"},
		{opt("level", "trace"), "debug info warn error"},
		{logging.Config{Debug: true}, "debug info warn error"},
		{logging.Config{Debug: true, LogOpt: map[string]string{"level": "error"}}, "debug info warn error"},
	} {
		l, out := newLog(t, c.config)
		log := l.Logger("m")
		log.Debug("debug")
		log.Info("info")
		log.Warn("warn")
		log.Error("error")
		var got []string
		for _, line := range out.Lines() {
			if m := regexp.MustCompile(`msg=(\w+)`).FindStringSubmatch(line); m != nil {
				got = append(got, m[1])
			}
		}
		if strings.Join(got, " ") != c.want {
			t.Errorf("%+v: %q, want %q", c.config, got, c.want)
		}
	}
}

func TestEveryLineCarriesTheModule(t *testing.T) {
	l, out := newLog(t, opt("format", "json"))
	log := l.Logger("a.b")
	log.Info("plain")
	log.With("x", 1).Warn("with")
	log.WithGroup("g").Error("group", "y", 2)
	for _, line := range out.Lines() {
		var fields map[string]any
		if err := json.Unmarshal([]byte(line), &fields); err != nil {
			t.Fatal(err)
		}
		if fields[logging.Subsys] != "a.b" {
			t.Error(line)
		}
	}
}

func TestProblemsAreCounted(t *testing.T) {
	l, _ := newLog(t, opt("level", "info"))
	l.Logger("early").Warn("before anybody counts")
	counts := map[string]int{}
	var mu sync.Mutex
	l.CountProblems(func(level, subsys string) { mu.Lock(); defer mu.Unlock(); counts[level+" "+subsys]++ })
	l.Logger("a").Warn("w")
	l.Logger("a").Warn("w")
	l.Logger("a").Error("e")
	l.Logger("b").Error("e")
	l.Logger("b").Info("i")
	if diff := cmp.Diff(map[string]int{"warning a": 2, "error a": 1, "error b": 1}, counts); diff != "" {
		t.Error(diff)
	}
}

func TestTwoLogsShareNothing(t *testing.T) {
	a, outA := newLog(t, opt("format", "json"))
	b, outB := newLog(t, opt("format", "text", "level", "error"))
	a.CountProblems(func(string, string) { t.Error("counted the other's") })
	a.Logger("m").Info("x")
	b.Logger("m").Error("y")
	if got := outA.Lines(); len(got) != 1 || got[0] != `{"level":"info","msg":"x","subsys":"m"}` {
		t.Error(got)
	}
	if got := outB.Lines(); len(got) != 1 || got[0] != `level=error msg=y subsys=m` {
		t.Error(got)
	}
}

func TestValidate(t *testing.T) {
	if err := (logging.Config{LogDriver: []string{"syslog"}}).Validate(); err != nil {
		t.Error(err)
	}
	if err := (logging.Config{LogDriver: []string{"syslog", "fluentd"}}).Validate(); err == nil || err.Error() != "--log-driver: must be syslog; no other driver is known" {
		t.Error(err)
	}
}

func TestFlags(t *testing.T) {
	fs := pflag.NewFlagSet("", pflag.ContinueOnError)
	config.TagFlags(fs, reflect.ValueOf(logging.Config{}))
	var names []string
	fs.VisitAll(func(f *pflag.Flag) { names = append(names, f.Name) })
	if diff := cmp.Diff([]string{"debug", "log-driver", "log-opt"}, names); diff != "" {
		t.Error(diff)
	}
}

// syslogd receives what is sent to a socket.
func syslogd(t *testing.T, network, address string) (string, func() string) {
	t.Helper()
	conn, err := net.ListenPacket(network, address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn.LocalAddr().String(), func() string {
		_ = conn.SetReadDeadline(time.Now().Add(10 * time.Second))
		packet := make([]byte, 4096)
		n, _, err := conn.ReadFrom(packet)
		if err != nil {
			t.Fatal(err)
		}
		return string(packet[:n])
	}
}

func TestSyslog(t *testing.T) {
	for network, address := range map[string]string{"udp": "127.0.0.1:0", "unixgram": filepath.Join(t.TempDir(), "log")} {
		t.Run(network, func(t *testing.T) {
			address, receive := syslogd(t, network, address)
			c := opt("format", "text", "level", "debug", "syslog.network", network, "syslog.address", address, "syslog.level", "warning",
				"syslog.facility", "log_daemon", "syslog.severity", "LOG_NOTICE", "syslog.tag", "skep")
			c.LogDriver = []string{"syslog"}
			l, out := newLog(t, c)
			l.Logger("m").Info("not severe enough")
			l.Logger("m").Warn("first")
			l.Logger("m").Error("second")
			for _, want := range []struct{ priority, text string }{
				{"<28>", "level=warning msg=first subsys=m"}, // daemon (3<<3) and warning (4)
				{"<27>", "level=error msg=second subsys=m"},  // daemon and error (3)
			} {
				got := receive()
				if !strings.HasPrefix(got, want.priority) || !strings.Contains(got, " skep[") || !strings.Contains(got, want.text) {
					t.Errorf("%q, want %+v", got, want)
				}
			}
			if got := out.Lines(); len(got) != 3 {
				t.Errorf("stderr still gets all lines: %q", got)
			}
		})
	}
}

func TestSyslogThatCannotBeUsed(t *testing.T) {
	for want, c := range map[string]logging.Config{
		`log-driver syslog: connecting to "/nowhere"`: opt("syslog.network", "unixgram", "syslog.address", "/nowhere"),
		"syslog.facility": opt("syslog.facility", "LOG_X"),
		"syslog.severity": opt("syslog.severity", "LOG_X"),
		"syslog.level":    opt("syslog.level", "x"),
	} {
		c.LogDriver = []string{"syslog"}
		err := logging.New(&logtest.Buffer{}).Configure(c)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

func TestConcurrentUse(t *testing.T) {
	l, out := newLog(t, opt("format", "text"))
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for range 50 {
				l.Logger(fmt.Sprint("m", i)).Warn("x")
				l.CountProblems(func(string, string) {})
			}
		})
	}
	wg.Wait()
	if got := len(out.Lines()); got != 400 {
		t.Errorf("%d lines", got)
	}
}

// CONF-17, API-18; K6 of the contract's tenants.md: whatever is in a line, in whatever form, it is one line that prints. JSON has the same values.
func TestLinesPrint(t *testing.T) {
	for _, format := range []string{"text", "text-ts", "json", "json-ts"} {
		for _, text := range append(printabletest.Texts, "\x7f\u009b31m\U000e0041") {
			l, out := newLog(t, opt("format", format))
			l.Logger("ipam").Warn(text, "text", text, "error", errors.New(text), "list", []string{text})
			line := strings.TrimSuffix(out.String(), "\n")
			printabletest.CheckLine(t, format, line)
			var fields map[string]any
			if strings.HasPrefix(format, "json") && (json.Unmarshal([]byte(line), &fields) != nil || fields["text"] != text || fields["msg"] != text) {
				t.Errorf("%s: %q is %q", format, text, line)
			}
		}
	}
}
