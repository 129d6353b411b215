// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package stream

import (
	"context"
	"fmt"
	"log/slog"
	"reflect"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"

	"github.com/skep-operator/skep/resources/dryrun"
	"github.com/skep-operator/skep/resources/k8s"
	"github.com/skep-operator/skep/resources/stream/internal/conditions"
	"github.com/skep-operator/skep/resources/stream/internal/reflector"
	"github.com/skep-operator/skep/runtime/cell"
	"github.com/skep-operator/skep/runtime/health"
	"github.com/skep-operator/skep/runtime/job"
	"github.com/skep-operator/skep/runtime/lifecycle"
)

// Cell watches the API server for all modules. Streams belong to the process:
// they outlive the terms of a leader.
var Cell = cell.Module("stream", "Watches the API server, once for all consumers",
	cell.Config(Config{Standby: standbyWarm}),
	cell.EnabledBy(k8s.InUse),
	k8s.OptionalRBAC(k8s.Allow("list,watch", crds.gvr.GroupResource())), // while a definition is missing

	cell.Provide(newStreams, newSection),
	cell.Hook("close", newCloser),
	cell.Job("warm", newWarmer),

	cell.Suggest(howToProvide),
	Provide(Pods), Provide(Namespaces), Provide(Nodes), Provide(Services), Provide(EndpointSlices),
)

// Provide offers a stream of a kind to all modules, as a Resource[T]. It belongs
// to the process wherever it is declared, and costs nothing before a module of
// the operator asks for it. Its log and its health are those of the module that
// declares it.
func Provide[T any](kind Kind[T], opts ...Option) cell.Cell {
	name := fmt.Sprintf("stream.Provide[%s]", reflect.TypeFor[T]())
	return cell.Set(
		cell.Check(cell.Made(name, kind.Check)),
		cell.ProvideProcess(cell.Made(name, func(s *Streams, log *slog.Logger, h health.Reporter) (Resource[T], error) {
			return provide(s, kind, log, h, opts)
		})),
	)
}

// ProvideSelected is Provide of a kind whose namespace or selectors follow from options: selected returns
// the kind with them. C is a value of the process, such as a config struct, which has validated the selectors.
func ProvideSelected[T, C any](kind Kind[T], selected func(Kind[T], C) Kind[T], opts ...Option) cell.Cell {
	name := fmt.Sprintf("stream.ProvideSelected[%s]", reflect.TypeFor[T]())
	return cell.Set(
		cell.Check(cell.Made(name, kind.Check)),
		cell.ProvideProcess(cell.Made(name, func(s *Streams, c C, log *slog.Logger, h health.Reporter) (Resource[T], error) {
			return provide(s, selected(kind, c), log, h, opts)
		})),
	)
}

func provide[T any](s *Streams, kind Kind[T], log *slog.Logger, h health.Reporter, opts []Option) (Resource[T], error) {
	own := []Option{WithLogger(log), WithHealth(h.Child(kind.gvr.Resource))}
	stream, err := New(s.source, kind, append(own, opts...)...)
	if err != nil {
		return nil, err
	}
	s.add(stream)
	return stream, nil
}

// howToProvide says how a stream that is missing comes into the graph.
func howToProvide(missing reflect.Type) string {
	if missing.PkgPath() == reflect.TypeFor[Streams]().PkgPath() && strings.HasPrefix(missing.Name(), "Resource[") {
		return "declare the stream with stream.Provide in the module that asks for it"
	}
	return ""
}

// Config is what a replica does that does not lead.
type Config struct {
	Standby string `flag:"standby" usage:"Behaviour of replicas that do not lead: warm (run all watches of the leader, for a fast failover) or cold (run none, to save memory)" oneof:"warm,cold"`
}

const (
	standbyWarm = "warm"
	standbyCold = "cold"
)

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
	retain(ctx context.Context)
	isOnDemand() bool
}

type streamsParams struct {
	cell.In

	Client k8s.Client
	Plan   *dryrun.Plan `optional:"true"`
}

func newStreams(p streamsParams) (*Streams, error) {
	connect, err := connectThrough(p.Client)
	s := &Streams{source: NewSource(connect)}
	s.source.plan, s.source.memory = p.Plan, reflector.NewMemory(debug.SetMemoryLimit(-1))
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
		if _, absent := state.Wrong[conditions.Resource]; state.Running && !state.Synced && !absent {
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
	row := []string{s.Name, strconv.Itoa(s.Objects), s.phase(), "", ""}
	if len(s.Subscribers) == 0 {
		return [][]string{row}
	}
	var rows [][]string
	for _, sub := range s.Subscribers {
		rows = append(rows, append(row[:3:3], sub.Name, strconv.Itoa(sub.Pending+sub.Processing)))
		row = []string{"", "", ""}
	}
	return rows
}

// phase is the state in a word or two.
func (s State) phase() string {
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
				if !p.isOnDemand() {
					p.retain(ctx)
				}
			}
		}
		<-ctx.Done()
		return ctx.Err()
	})
}

func (s *Stream[T]) isOnDemand() bool { return s.onDemand }

// retain keeps the stream running until ctx ends.
func (s *Stream[T]) retain(ctx context.Context) {
	_, release := s.use()
	context.AfterFunc(ctx, release)
}
