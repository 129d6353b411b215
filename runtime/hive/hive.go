// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package hive

import (
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/spf13/pflag"

	"github.com/skep-operator/skep/runtime/cell"
	"github.com/skep-operator/skep/runtime/config"
	"github.com/skep-operator/skep/runtime/health"
	"github.com/skep-operator/skep/runtime/internal/decl"
	"github.com/skep-operator/skep/runtime/internal/plan"
	"github.com/skep-operator/skep/runtime/logging"
	"github.com/skep-operator/skep/runtime/metrics"
)

// Hive is an operator made of cells. The methods of phases must not be called
// concurrently.
type Hive struct {
	name    string
	options options
	log     *logging.Log
	health  *health.Tree
	metrics *metrics.Registry
	jobs    *jobMetrics
	profile *profile

	plan   *plan.Plan
	schema *config.Schema
	values *config.Values
	orders []*plan.Order

	configured, selected, validated, built, started, stopped phase

	process  *scope
	terms    map[string]*term
	shutdown shutdown
	building sync.Mutex // one build at a time, of the process or a term

	live live
}

// phase remembers the outcome of a phase.
type phase struct {
	done bool
	err  error
}

func (p *phase) once(do func() error) error {
	if !p.done {
		p.done, p.err = true, do()
	}
	return p.err
}

type options struct {
	sources    config.Sources
	version    string
	product    string
	logTo      io.Writer
	namespace  string
	startLimit time.Duration
	stopLimit  time.Duration
	retryFirst time.Duration
	retryLimit time.Duration
}

// Option changes how a hive works.
type Option func(*options)

// EnvPrefix starts the names of the environment variables that options are
// read from, for example CILIUM_.
func EnvPrefix(prefix string) Option { return func(o *options) { o.sources.EnvPrefix = prefix } }

// Environ replaces the process' environment as a source of values.
func Environ(lookup func(string) (string, bool)) Option {
	return func(o *options) { o.sources.Environ = lookup }
}

// ConfigFile names the config file that is looked for in the home directory,
// without its ending.
func ConfigFile(name string) Option { return func(o *options) { o.sources.FileName = name } }

// Version is what the version command prints.
func Version(v string) Option { return func(o *options) { o.version = v } }

// Product is what the version command prints before the version.
func Product(name string) Option { return func(o *options) { o.product = name } }

// LogTo writes the log to w instead of stderr.
func LogTo(w io.Writer) Option { return func(o *options) { o.logTo = w } }

// MetricsNamespace starts the names of the hive's own metrics.
func MetricsNamespace(ns string) Option { return func(o *options) { o.namespace = ns } }

// Limits bound how long all of the process may take to start and to stop.
// Without it they are five minutes and one minute.
func Limits(start, stop time.Duration) Option {
	return func(o *options) { o.startLimit, o.stopLimit = start, stop }
}

// Restarts changes the pauses before a module that keeps failing is rebuilt:
// they double from first to longest, and start over after the module has been
// up for longest.
func Restarts(first, longest time.Duration) Option {
	return func(o *options) { o.retryFirst, o.retryLimit = first, longest }
}

// Config is the hive's own options.
type Config struct {
	Config         string
	ConfigDir      string
	StrictConfig   bool
	ProfileStartup string
}

// Flags implements cell.Flagger.
func (c Config) Flags(fs *pflag.FlagSet) {
	fs.String(config.FileOption, c.Config, "Config file; it replaces the config directory")
	fs.String(config.DirOption, c.ConfigDir, "Directory with a file per option, such as a mounted ConfigMap")
	fs.Bool(config.StrictOption, c.StrictConfig, "Refuse to start on a key that is nearly an option")
	fs.String("profile-startup", c.ProfileStartup, "Write how long each step of the start took to this file, as JSON")
}

// New declares a hive of the given cells. It never fails: mistakes in the list
// come out of Select.
func New(name string, cells cell.Cell, opts ...Option) *Hive {
	h := &Hive{
		name: name,
		options: options{
			sources: config.Sources{Environ: os.LookupEnv}, logTo: os.Stderr,
			startLimit: 5 * time.Minute, stopLimit: time.Minute,
			retryFirst: time.Second, retryLimit: 5 * time.Minute,
			version: "unknown",
		},
		health:   health.NewTree(),
		metrics:  metrics.NewRegistry(),
		profile:  newProfile(),
		shutdown: shutdown{asked: make(chan struct{})},
	}
	for _, o := range opts {
		o(&h.options)
	}
	h.log = logging.New(h.options.logTo)
	h.jobs = newJobMetrics(h.options.namespace)
	h.metrics.Module("hive").MustRegister(h.jobs.Runs, h.jobs.Duration)
	defer h.profile.time("declare", "")()
	own := cell.Module("hive", "Finds the configuration, builds the graph and starts the cells",
		cell.Config(Config{}), cell.Config(logging.Config{}))
	h.plan = plan.New([]decl.Node{own.Declaration(), cells.Declaration()}, builtins)
	h.collectOptions()
	return h
}

// Name is what the hive is called.
func (h *Hive) Name() string { return h.name }

// VersionText is what the version command prints.
func (h *Hive) VersionText() string {
	return strings.TrimSpace(h.options.product + " " + h.options.version)
}

// FlagSet has all options as flags.
func (h *Hive) FlagSet() *pflag.FlagSet { return h.schema.FlagSet(h.name) }

// Annotations calls visit for what modules are annotated with, in declaration
// order, disabled modules included. It needs no phase.
func (h *Hive) Annotations(visit func(module string, value any)) {
	for _, m := range h.plan.Modules {
		for _, a := range m.Annotations {
			visit(m.ID, a)
		}
	}
}

// OptionNames are the names of all options.
func (h *Hive) OptionNames() []string { return h.schema.Names() }

// Configure finds the values of all options. flags is a parsed set made by
// FlagSet, or nil. The error is a *config.Report of all that is wrong.
func (h *Hive) Configure(flags *pflag.FlagSet) error {
	return h.configured.once(func() error {
		defer h.profile.time("configure", "")()
		var err error
		h.values, err = h.schema.Load(h.options.sources, flags)
		return err
	})
}

// Values are the effective values of all options, after Configure.
func (h *Hive) Values() *config.Values { return h.values }

// Select decides which modules are on, and finds the provider of every value.
// The error tells all mistakes in the graph. It works also when values are
// wrong: defaults stand in for them.
func (h *Hive) Select() error {
	_ = h.Configure(nil)
	return h.selected.once(func() error {
		defer h.profile.time("select", "")()
		h.plan.Choose(h.values.Struct)
		h.plan.Resolve()
		h.plan.Reach()
		h.terms = map[string]*term{}
		for _, t := range h.plan.Terms {
			h.terms[t.Name] = h.newTerm(t)
		}
		if len(h.plan.Problems) == 0 {
			h.orders = h.plan.Orders()
		}
		return h.plan.Err()
	})
}
