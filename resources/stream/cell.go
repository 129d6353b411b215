// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package stream

import (
	"context"
	"log/slog"
	"strconv"
	"sync"

	"github.com/spf13/pflag"

	"github.com/skep-operator/skep/resources/k8s"
	"github.com/skep-operator/skep/resources/plan"
	"github.com/skep-operator/skep/runtime/cell"
	"github.com/skep-operator/skep/runtime/health"
	"github.com/skep-operator/skep/runtime/job"
	"github.com/skep-operator/skep/runtime/lifecycle"
)

// Cell watches the API server for all modules. Streams belong to the process:
// they outlive the terms of a leader.
var Cell = cell.Module("stream", "Watches the API server, once for all who want the same objects",
	cell.Config(Config{Standby: standbyWarm}),
	cell.EnabledBy(k8s.InUse),

	cell.Provide(newStreams, newSection),
	cell.Hook("close", newCloser),
	cell.Job("warm", newWarmer),

	Provide(Pods), Provide(Namespaces), Provide(Nodes), Provide(Services), Provide(EndpointSlices),
)

// Provide offers a stream of a kind to all modules, as a Resource[T]. It belongs
// to the process wherever it is declared, and costs nothing before a module of
// the operator asks for it. Its log and its health are those of the module that
// declares it.
func Provide[T any](kind Kind[T], opts ...Option) cell.Cell {
	return cell.Lasting(func(s *Streams, log *slog.Logger, h health.Reporter) (Resource[T], error) {
		own := []Option{WithLogger(log), WithHealth(h.Part(kind.gvr.Resource))}
		stream, err := New(s.source, kind, append(own, opts...)...)
		if err != nil {
			return nil, err
		}
		s.add(stream)
		return stream, nil
	})
}

// Config is what a replica does that does not lead.
type Config struct {
	Standby string
}

const (
	standbyWarm = "warm"
	standbyCold = "cold"
)

// Flags implements cell.Flagger.
func (c Config) Flags(fs *pflag.FlagSet) {
	fs.String("standby", c.Standby, "What a replica does that does not lead: warm watches all that the leader watches, so that it takes over at once; cold watches nothing and needs no memory for it")
}

// Validate implements the check of config structs.
func (c Config) Validate() error {
	if c.Standby != standbyWarm && c.Standby != standbyCold {
		return cell.Invalid("standby", "must be %s or %s", standbyWarm, standbyCold)
	}
	return nil
}

// Streams are those that Provide has made for an operator. It is safe for
// concurrent use.
type Streams struct {
	source *Source

	mu  sync.Mutex
	all []provided
}

// provided is a Stream of whatever type.
type provided interface {
	State() State
	Close()
	hold(ctx context.Context)
}

type streamsParams struct {
	cell.In

	Client k8s.Client
	Plan   *plan.Plan `optional:"true"`
}

func newStreams(p streamsParams) (*Streams, error) {
	connect, err := connectThrough(p.Client)
	s := &Streams{source: NewSource(connect)}
	s.source.plan = p.Plan
	p.Plan.Observe(s.load)
	return s, err
}

func (s *Streams) add(p provided) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all = append(s.all, p)
}

func (s *Streams) list() []provided {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]provided(nil), s.all...)
}

// States are the states of all streams, in the order of their declaration.
func (s *Streams) States() []State {
	var states []State
	for _, p := range s.list() {
		states = append(states, p.State())
	}
	return states
}

// Unsynced are the streams that run without their initial state. Those of a kind
// that the API server does not know are not among them: it may never come.
func (s *Streams) Unsynced() []string {
	var names []string
	for _, state := range s.States() {
		if _, absent := state.Wrong[conditionResource]; state.Running && !state.Synced && !absent {
			names = append(names, state.Name)
		}
	}
	return names
}

// section is the streams on the status screen.
type section struct {
	cell.Out

	Section health.Section `group:"status sections"`
}

func newSection(s *Streams) section {
	return section{Section: health.Section{
		Title:   "Streams",
		Columns: []string{"RESOURCE", "OBJECTS", "STATE", "SUBSCRIBER", "BEHIND"},
		Rows: func() [][]string {
			var rows [][]string
			for _, state := range s.States() {
				rows = append(rows, state.rows()...)
			}
			return rows
		},
	}}
}

// rows are a line for the stream, and one more for each further subscriber.
func (s State) rows() [][]string {
	row := []string{s.Name, strconv.Itoa(s.Objects), s.word(), "", ""}
	if len(s.Subscribers) == 0 {
		return [][]string{row}
	}
	var rows [][]string
	for _, sub := range s.Subscribers {
		rows = append(rows, append(row[:3:3], sub.Name, strconv.Itoa(sub.Pending+sub.InFlight+sub.Retrying)))
		row = []string{"", "", ""}
	}
	return rows
}

// word is the state in a word or two.
func (s State) word() string {
	switch {
	case !s.Running:
		return "not in use"
	case !s.Synced:
		return "waiting"
	case s.ConnectedSince.IsZero():
		return "not connected"
	}
	return "synced"
}

func newCloser(s *Streams) lifecycle.Hook {
	return lifecycle.Funcs{OnStop: func(context.Context) error {
		for _, p := range s.list() {
			p.Close()
		}
		return nil
	}}
}

// newWarmer uses all streams as long as the process runs, so that none of them
// stops between two terms, or waits for the first.
func newWarmer(c Config, s *Streams) job.Job {
	return job.OneShot(func(ctx context.Context) error {
		if c.Standby == standbyWarm {
			for _, p := range s.list() {
				p.hold(ctx)
			}
		}
		<-ctx.Done()
		return ctx.Err()
	})
}

// hold keeps the stream running until ctx ends.
func (s *Stream[T]) hold(ctx context.Context) {
	_, release := s.use()
	context.AfterFunc(ctx, release)
}
