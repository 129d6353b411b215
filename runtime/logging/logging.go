// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package logging

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"log/syslog"
	"maps"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/sirupsen/logrus"
	logrusslog "github.com/sirupsen/logrus/hooks/slog"
	logrussyslog "github.com/sirupsen/logrus/hooks/syslog"

	"github.com/skep-operator/skep/runtime/cell"
	"github.com/skep-operator/skep/runtime/printable"
)

// Subsys is the field that names the module of a line.
const Subsys = "subsys"

// Config is how the process logs.
type Config struct {
	Debug     bool              `flag:"debug" usage:"Log debug messages" short:"D"`
	LogDriver []string          `flag:"log-driver" usage:"Log drivers besides stderr: syslog"`
	LogOpt    map[string]string `flag:"log-opt" usage:"Log options: level, format (text, text-ts, json, json-ts), writer (stderr, stdout), syslog.{level,facility,severity,tag,network,address}"`
}

// Validate implements the check of config structs.
func (c Config) Validate() error {
	for _, d := range c.LogDriver {
		if d != "syslog" {
			return cell.Invalid("log-driver", "must be syslog; no other driver is known")
		}
	}
	return nil
}

// Log is the process' log. It is safe for concurrent use.
type Log struct {
	logrus *logrus.Logger
	slog   *slog.Logger
	count  atomic.Pointer[func(level, subsys string)]
}

// New returns a log that writes to w in the default form.
func New(w io.Writer) *Log {
	l := &Log{logrus: logrus.New()}
	l.logrus.SetOutput(w)
	l.logrus.SetFormatter(formatter("text-ts"))
	l.logrus.AddHook(bound{})
	l.logrus.AddHook(counter{l})
	l.slog = slog.New(logrusslog.NewHandler(l.logrus, nil))
	return l
}

// Logger is the logger of a module: every line carries its id as subsys.
func (l *Log) Logger(module string) *slog.Logger { return l.slog.With(Subsys, module) }

// Mark has every line from now on carry a field, for what is true of the whole run.
func (l *Log) Mark(key string, value any) { l.logrus.AddHook(mark{key, value}) }

// mark adds a field to entries.
type mark struct {
	key   string
	value any
}

// Levels implements logrus.Hook.
func (mark) Levels() []logrus.Level { return logrus.AllLevels }

// Fire implements logrus.Hook.
func (m mark) Fire(e *logrus.Entry) error {
	e.Data[m.key] = m.value
	return nil
}

// CountProblems calls count for every warning and error from now on.
func (l *Log) CountProblems(count func(level, subsys string)) { l.count.Store(&count) }

// Configure changes level, form and destinations. A format, level or key that it
// does not know is logged, and the default taken; a syslog that it cannot reach
// is an error. It is called once.
func (l *Log) Configure(c Config) error {
	log := l.Logger("logging")
	switch writer := c.LogOpt["writer"]; writer {
	case "":
	case "stdout":
		l.logrus.SetOutput(os.Stdout)
	case "stderr":
		l.logrus.SetOutput(os.Stderr)
	default:
		log.Warn("log-opt writer is unknown and left out", "writer", writer)
	}
	if f := formatter(valueOr(c.LogOpt, "format", "text-ts")); f != nil {
		l.logrus.SetFormatter(f)
	} else {
		log.Warn("log-opt format is unknown, using text-ts", "format", c.LogOpt["format"])
	}
	level, err := logrus.ParseLevel(valueOr(c.LogOpt, "level", "info"))
	if err != nil {
		log.Warn("log-opt level is unknown, using info", "level", c.LogOpt["level"])
		level = logrus.InfoLevel
	}
	if c.Debug {
		level = max(level, logrus.DebugLevel)
	}
	l.logrus.SetLevel(level)
	for _, key := range slices.Sorted(maps.Keys(c.LogOpt)) {
		if !slices.Contains(knownOptions, key) {
			log.Warn("log-opt key is unknown and left out", "key", key)
		}
	}
	if slices.Contains(c.LogDriver, "syslog") {
		return l.addSyslog(c.LogOpt)
	}
	return nil
}

var knownOptions = []string{"level", "format", "writer", "syslog.level", "syslog.facility", "syslog.severity", "syslog.tag", "syslog.network", "syslog.address"}

// formatter is a new formatter of the given name, or nil.
func formatter(name string) logrus.Formatter {
	switch name {
	case "text":
		return escaped{&logrus.TextFormatter{DisableTimestamp: true, DisableColors: true}}
	case "text-ts":
		return escaped{&logrus.TextFormatter{TimestampFormat: time.RFC3339Nano, FullTimestamp: true, DisableColors: true}}
	case "json":
		return escaped{&logrus.JSONFormatter{DisableTimestamp: true}}
	case "json-ts":
		return escaped{&logrus.JSONFormatter{TimestampFormat: time.RFC3339Nano}}
	}
	return nil
}

// escaped is a formatter whose lines print, whatever is in them: JSON, and text that it does not quote, may have characters that control a terminal.
type escaped struct{ logrus.Formatter }

// Format implements logrus.Formatter.
func (f escaped) Format(e *logrus.Entry) ([]byte, error) {
	line, err := f.Formatter.Format(e)
	if shown := printable.Text(string(line)); shown != string(line) {
		line = []byte(shown)
	}
	return line, err
}

func (l *Log) addSyslog(opts map[string]string) error {
	facility, ok1 := facilities[strings.ToUpper(valueOr(opts, "syslog.facility", "LOG_KERN"))]
	severity, ok2 := severities[strings.ToUpper(valueOr(opts, "syslog.severity", "LOG_INFO"))]
	level, err := logrus.ParseLevel(valueOr(opts, "syslog.level", "info"))
	if !ok1 || !ok2 || err != nil {
		return errors.New("log-opt: syslog.facility and syslog.severity are names such as LOG_DAEMON and LOG_INFO, syslog.level is one such as info")
	}
	hook, err := logrussyslog.NewSyslogHook(opts["syslog.network"], opts["syslog.address"], facility|severity, opts["syslog.tag"])
	if err != nil {
		return fmt.Errorf("log-driver syslog: connecting to %q: %w", opts["syslog.address"], err)
	}
	l.logrus.AddHook(upTo{hook, level})
	return nil
}

// upTo passes a hook the entries of a level and those more severe.
type upTo struct {
	logrus.Hook
	level logrus.Level
}

func (u upTo) Levels() []logrus.Level { return logrus.AllLevels[:u.level+1] }

// counter counts problems by level and module.
type counter struct{ log *Log }

func (counter) Levels() []logrus.Level {
	return []logrus.Level{logrus.WarnLevel, logrus.ErrorLevel}
}

func (c counter) Fire(e *logrus.Entry) error {
	if count := c.log.count.Load(); count != nil {
		subsys, _ := e.Data[Subsys].(string)
		(*count)(e.Level.String(), subsys)
	}
	return nil
}

func valueOr(m map[string]string, key, fallback string) string {
	if v := m[key]; v != "" {
		return v
	}
	return fallback
}

var facilities = map[string]syslog.Priority{
	"LOG_KERN": syslog.LOG_KERN, "LOG_USER": syslog.LOG_USER, "LOG_MAIL": syslog.LOG_MAIL, "LOG_DAEMON": syslog.LOG_DAEMON,
	"LOG_AUTH": syslog.LOG_AUTH, "LOG_SYSLOG": syslog.LOG_SYSLOG, "LOG_LPR": syslog.LOG_LPR, "LOG_NEWS": syslog.LOG_NEWS,
	"LOG_UUCP": syslog.LOG_UUCP, "LOG_CRON": syslog.LOG_CRON, "LOG_AUTHPRIV": syslog.LOG_AUTHPRIV, "LOG_FTP": syslog.LOG_FTP,
	"LOG_LOCAL0": syslog.LOG_LOCAL0, "LOG_LOCAL1": syslog.LOG_LOCAL1, "LOG_LOCAL2": syslog.LOG_LOCAL2, "LOG_LOCAL3": syslog.LOG_LOCAL3,
	"LOG_LOCAL4": syslog.LOG_LOCAL4, "LOG_LOCAL5": syslog.LOG_LOCAL5, "LOG_LOCAL6": syslog.LOG_LOCAL6, "LOG_LOCAL7": syslog.LOG_LOCAL7,
}

var severities = map[string]syslog.Priority{
	"LOG_EMERG": syslog.LOG_EMERG, "LOG_ALERT": syslog.LOG_ALERT, "LOG_CRIT": syslog.LOG_CRIT, "LOG_ERR": syslog.LOG_ERR,
	"LOG_WARNING": syslog.LOG_WARNING, "LOG_NOTICE": syslog.LOG_NOTICE, "LOG_INFO": syslog.LOG_INFO, "LOG_DEBUG": syslog.LOG_DEBUG,
}
