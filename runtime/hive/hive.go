// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package hive

import (
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/pflag"

	"github.com/skep-operator/skep/runtime/cell"
	"github.com/skep-operator/skep/runtime/config"
	"github.com/skep-operator/skep/runtime/health"
	"github.com/skep-operator/skep/runtime/internal/decl"
	"github.com/skep-operator/skep/runtime/internal/resolve"
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
	own     *ownMetrics
	profile *profile
	eventMu sync.Mutex // one event at a time

	graph  *resolve.Graph
	schema *config.Schema
	values *config.Values
	orders []*resolve.Order
	// questionable are values that are used despite an objection of their module.
	questionable []questionable

	configured, selected, validated, built, started, stopped phase

	process  *scope
	terms    map[string]*term
	shutdown shutdown
	buildMu  sync.Mutex // one build at a time, of the process or a term

	stats *runtimeStats
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

// phase runs a phase once and emits its event.
func (h *Hive) phase(p *phase, kind EventKind, do func() error) error {
	return p.once(func() error { return h.timed(Event{Kind: kind}, do) })
}

type options struct {
	sources        config.Sources
	version        string
	product        string
	logTo          io.Writer
	namespace      string
	startTimeout   time.Duration
	stopTimeout    time.Duration
	rebuildFirst   time.Duration
	rebuildLongest time.Duration
	onEvent        []func(Event)
}

// Option changes how a hive works.
type Option func(*options)

// EnvPrefix starts the names of the environment variables that options are
// read from, for example CILIUM_. Without it options are not read from variables
// of their name.
func EnvPrefix(prefix string) Option { return func(o *options) { o.sources.EnvPrefix = prefix } }

// Environ replaces the process' environment as a source of values.
func Environ(lookup func(string) (string, bool)) Option {
	return func(o *options) { o.sources.Environ = lookup }
}

// ConfigFile is the name, without its ending, of the config file in the home
// directory.
func ConfigFile(name string) Option { return func(o *options) { o.sources.FileName = name } }

// Version is what the version command prints.
func Version(v string) Option { return func(o *options) { o.version = v } }

// Product is what the version command prints before the version.
func Product(name string) Option { return func(o *options) { o.product = name } }

// LogTo writes the log to w instead of stderr.
func LogTo(w io.Writer) Option { return func(o *options) { o.logTo = w } }

// MetricsNamespace starts the names of the hive's own metrics, and of those that cells make with a metrics.Factory.
func MetricsNamespace(ns string) Option { return func(o *options) { o.namespace = ns } }

// StartStopTimeouts bound how long all of the process may take to start and to
// stop. The default is five minutes and one minute.
func StartStopTimeouts(start, stop time.Duration) Option {
	return func(o *options) { o.startTimeout, o.stopTimeout = start, stop }
}

// RebuildBackoff changes the pauses before a module that keeps failing is rebuilt:
// they double from first to longest, and start over after the module has run
// for longest.
func RebuildBackoff(first, longest time.Duration) Option {
	return func(o *options) { o.rebuildFirst, o.rebuildLongest = first, longest }
}

// Config is the hive's own options.
type Config struct {
	Config         string `flag:"config" usage:"Configuration file; replaces the configuration directory"`
	ConfigDir      string `flag:"config-dir" usage:"Directory with one file per option, such as a mounted ConfigMap"`
	StrictConfig   bool   `flag:"strict-config" usage:"Refuse to start on a key that resembles an option, and on questionable values"`
	ProfileStartup string `flag:"profile-startup" usage:"Write the duration of each startup step to this file, as JSON"`
}

// New declares a hive of the given cells. It never fails: Select returns mistakes
// in the list.
func New(name string, cells cell.Cell, opts ...Option) *Hive {
	h := &Hive{
		name: name,
		options: options{
			sources: config.Sources{Environ: os.LookupEnv}, logTo: os.Stderr,
			startTimeout: 5 * time.Minute, stopTimeout: time.Minute,
			rebuildFirst: time.Second, rebuildLongest: 5 * time.Minute,
			version: "unknown",
		},
		health:   health.NewTree(),
		metrics:  metrics.NewRegistry(),
		profile:  newProfile(),
		stats:    newRuntimeStats(),
		shutdown: shutdown{requested: make(chan struct{})},
	}
	for _, o := range opts {
		o(&h.options)
	}
	h.log = logging.New(h.options.logTo)
	h.own = newOwnMetrics(h.options.namespace, h.options.version)
	h.metrics.Module("hive").MustRegister(h.own.collectors()...)
	began := time.Now()
	own := cell.Module("hive", "Finds the configuration, builds the graph and starts the cells",
		cell.Config(Config{}), cell.Config(logging.Config{}))
	h.graph = resolve.New(h.options.namespace, []decl.Node{own.Declaration(), cells.Declaration()}, builtins)
	h.collectOptions()
	h.emit(Event{Kind: EventDeclared, Took: time.Since(began)})
	return h
}

// Name is the name given to New.
func (h *Hive) Name() string { return h.name }

// VersionText is what the version command prints.
func (h *Hive) VersionText() string {
	return strings.TrimSpace(h.options.product + " " + h.options.version)
}

// FlagSet has all options as flags.
func (h *Hive) FlagSet() *pflag.FlagSet { return h.schema.FlagSet(h.name) }

// Annotations calls visit for the annotations of modules, in declaration order,
// disabled modules included. It needs no phase.
func (h *Hive) Annotations(visit func(module string, value any)) {
	for _, m := range h.graph.Modules {
		for _, a := range m.Annotations {
			visit(m.ID, a)
		}
	}
}

// OptionNames are the names of all options.
func (h *Hive) OptionNames() []string { return h.schema.Names() }

// Configure finds the values of all options. flags is a parsed set made by
// FlagSet, or nil. The error is a *config.Report of all problems.
func (h *Hive) Configure(flags *pflag.FlagSet) error {
	return h.phase(&h.configured, EventConfigured, func() (err error) {
		h.values, err = h.schema.Load(h.options.sources, flags)
		return err
	})
}

// Warnings are remarks about the configuration that stop nothing, one line each: about its sources, duties that are
// not built, options without effect, and values that are questionable.
func (h *Hive) Warnings() []string {
	_ = h.Validate()
	warnings := h.generalWarnings()
	for _, q := range h.questionable {
		warnings = append(warnings, q.problem.Message())
	}
	return warnings
}

// generalWarnings are the warnings that are about no single value.
func (h *Hive) generalWarnings() []string {
	warnings := slices.Clone(h.values.Warnings)
	for _, text := range []string{h.notBuilt(), h.withoutEffect()} {
		if text != "" {
			warnings = append(warnings, text)
		}
	}
	return warnings
}

// ListErr is what is wrong with the list of cells itself, such as a Replace of a module that is missing, whatever
// the options. Other mistakes may follow from these, and are not reported with them.
func (h *Hive) ListErr() error { return h.graph.ListErr() }

// RemovedFlag is the id of the removed module that a flag belonged to, or nothing.
func (h *Hive) RemovedFlag(name string) string { return h.removedFlags()[name] }

// Values are the effective values of all options, after Configure.
func (h *Hive) Values() *config.Values { return h.values }

// Select decides which modules are enabled, and finds the provider of every
// value. The error lists all mistakes in the graph. For values that are wrong it
// uses the defaults.
func (h *Hive) Select() error {
	_ = h.Configure(nil)
	return h.phase(&h.selected, EventSelected, func() error {
		h.terms = map[string]*term{}
		for _, t := range h.graph.Terms {
			h.terms[t.Name] = h.newTerm(t)
		}
		if h.ListErr() != nil {
			return h.ListErr()
		}
		h.graph.EvaluateConditions(h.ruleInput)
		h.checkConditions()
		h.graph.ResolveParams()
		h.graph.MarkReachable()
		if len(h.graph.Problems) == 0 {
			h.orders = h.graph.Orders()
		}
		return h.graph.Err()
	})
}
